/** The neighbours of podseidon that tests run beside it: built with Go once, and kept in the cache for all clones. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { copySources, type ModuleName, pinnedVersion } from "../../../scripts/control-plane/binaries/go-build.ts";
import { builtOnce } from "../cluster/test-tools.ts";

/** A controller with the files of its repository that it needs. */
export interface Neighbour {
  /** Path of the binary. */
  readonly binary: string;
  /** CRDs, YAML. */
  readonly definitions: readonly string[];
}

interface Source {
  readonly path: string;
  /** The binary's name, after the last element of its package. */
  readonly binary: string;
  /** Where its CRDs are in its repository. */
  readonly definitions?: readonly string[];
  /** How long the build takes on two cores. */
  readonly minutes: number;
}

const SOURCES = {
  descheduler: { path: "sigs.k8s.io/descheduler", binary: "descheduler", minutes: 2 },
  "argo-rollouts": {
    path: "github.com/argoproj/argo-rollouts",
    binary: "rollouts-controller",
    definitions: ["manifests/crds/*-crd.yaml"],
    minutes: 6,
  },
  karpenter: {
    path: "sigs.k8s.io/karpenter",
    binary: "kwok",
    definitions: ["kwok/charts/crds/*.yaml", "kwok/apis/crds/*.yaml"],
    minutes: 3,
  },
  "kustomize-controller": {
    path: "github.com/fluxcd/kustomize-controller",
    binary: "kustomize-controller",
    definitions: ["config/crd/bases/*.yaml"],
    minutes: 5,
  },
  "vertical-pod-autoscaler": {
    path: "k8s.io/autoscaler/vertical-pod-autoscaler",
    binary: "updater",
    definitions: ["deploy/vpa-v1-crd-gen.yaml"],
    minutes: 2,
  },
} as const satisfies Partial<Record<ModuleName, Source>>;

export type NeighbourName = keyof typeof SOURCES;

/** The version, without a leading `v`. */
export function neighbourVersion(name: NeighbourName): string {
  return pinnedVersion(name, SOURCES[name].path);
}

export async function ensureNeighbour(name: NeighbourName): Promise<Neighbour> {
  const { path, binary, definitions = [], minutes }: Source = SOURCES[name];
  const directory = await builtOnce(name, `${name}-${neighbourVersion(name)}`, minutes, (staging) =>
    copySources(name, path, definitions, join(staging, "crds")),
  );
  const crds = join(directory, "crds");
  const read = (file: string): string => readFileSync(join(crds, file), "utf8");
  return { binary: join(directory, binary), definitions: readdirSync(crds).map(read) };
}
