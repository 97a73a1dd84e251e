/** Renders the manifests of a release from `manifests/`, with the kubectl of the tests. */
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempDisposableSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { root } from "../root.ts";

/**
 * Not a valid cell: kube-apiserver rejects the placeholder in the webhook configuration, and the aggregator rejects it
 * as an id.
 */
export const CELL_PLACEHOLDER = "<CELL-ID>";

export interface RenderOptions {
  /** Below `manifests`. */
  readonly overlay: string;
  /** `NAME@DIGEST`; the manifests' own image without it. */
  readonly image?: { readonly name: string; readonly digest: string };
  /** Replaces the overlay's own id. */
  readonly cell?: string;
  readonly kubectl: string;
}

/** Returns input for `kubectl apply --filename`. Throws when the overlay can't be built. */
export function render({ overlay, image, cell, kubectl }: RenderOptions): string {
  // Inside of the repository, because a kustomization uses relative paths.
  mkdirSync(join(root, ".cache"), { recursive: true });
  using directory = mkdtempDisposableSync(join(root, ".cache", "release-"));
  const path = (...parts: readonly string[]): string => relative(directory.path, join(root, "manifests", ...parts));
  const cellMap = {
    components: [path("components", "cell")],
    configMapGenerator: [
      {
        ...{ name: "podseidon-cell", namespace: "podseidon-system", behavior: "merge", literals: [`id=${cell}`] },
        options: { disableNameSuffixHash: true },
      },
    ],
  };
  const kustomization = {
    apiVersion: "kustomize.config.k8s.io/v1beta1",
    kind: "Kustomization",
    resources: [path(overlay)],
    ...(image === undefined ? {} : { images: [{ name: "podseidon", newName: image.name, digest: image.digest }] }),
    ...(cell === undefined ? {} : cellMap),
  };
  writeFileSync(join(directory.path, "kustomization.yaml"), JSON.stringify(kustomization));
  return execFileSync(kubectl, ["kustomize", directory.path], { encoding: "utf8" });
}

export interface ReleaseManifest {
  readonly file: string;
  readonly overlay: string;
  readonly cell?: string;
  readonly head: string;
}

export const MANIFESTS: readonly ReleaseManifest[] = [
  { file: "install.yaml", overlay: "overlays/single-cluster", head: "One cluster: kubectl apply -f install.yaml" },
  {
    ...{ file: "install-core.yaml", overlay: "overlays/core" },
    head: "The core of many clusters: kubectl apply -f install-core.yaml",
  },
  {
    ...{ file: "install-cell.yaml", overlay: "overlays/worker", cell: CELL_PLACEHOLDER },
    head: `A worker cluster: sed 's/${CELL_PLACEHOLDER}/worker-2/' install-cell.yaml | kubectl apply -f -, then join`,
  },
  { file: "crds.yaml", overlay: "base/crds", head: "Before an upgrade: kubectl apply -f crds.yaml" },
];
