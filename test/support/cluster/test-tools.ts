/** What single tests need beside a control plane: built with Go once, and kept in the cache for all clones. */
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import { type Binaries, cacheDirectory, ensureBinaries } from "../../../scripts/control-plane/binaries/binaries.ts";
import { exclusively, lockNameOf } from "../../../scripts/control-plane/binaries/exclusive.ts";
import {
  buildModule,
  copySources,
  type ModuleName,
  pinnedVersion,
} from "../../../scripts/control-plane/binaries/go-build.ts";
import { stderrProgress } from "../../../scripts/control-plane/binaries/progress.ts";

/** Resolves with the directory of what a module builds; `name` is its directory's name and has the version. */
export async function builtOnce(
  module: ModuleName,
  name: string,
  minutes: number,
  finish: (directory: string) => Promise<void> = async () => {},
): Promise<string> {
  const directory = join(dirname(cacheDirectory(process.env)), name);
  const progress = stderrProgress();
  return await exclusively(lockNameOf(directory), progress, async () => {
    if (existsSync(directory)) return directory;
    const staging = `${directory}.unfinished`;
    rmSync(staging, { recursive: true, force: true });
    mkdirSync(staging, { recursive: true });
    progress.step(`building ${name} with Go from sources (about ${minutes} minutes, once)`);
    await buildModule(module, staging, progress);
    await finish(staging);
    renameSync(staging, directory);
    return directory;
  });
}

/** The oldest Kubernetes that is supported, without a leading `v`. */
export function oldestKubernetes(): string {
  return pinnedVersion("oldest-kubernetes", "k8s.io/kubernetes");
}

/** The usual binaries with the kube-apiserver of the oldest Kubernetes. */
export async function oldestBinaries(): Promise<Binaries> {
  const binaries = await ensureBinaries();
  const directory = await builtOnce("oldest-kubernetes", `kube-apiserver-${oldestKubernetes()}`, 5);
  return { ...binaries, "kube-apiserver": join(directory, "kube-apiserver") };
}

const CERT_MANAGER = "github.com/cert-manager/cert-manager";

/** The version of cert-manager, without a leading `v`. */
export function certManagerVersion(): string {
  return pinnedVersion("cert-manager", CERT_MANAGER);
}

/** cert-manager, which can issue the webhook's certificates instead of the project's own controller. */
export interface CertManager {
  /** Paths of binaries. */
  readonly controller: string;
  readonly cainjector: string;
  /** CRDs, YAML. */
  readonly definitions: readonly string[];
}

export async function ensureCertManager(): Promise<CertManager> {
  const directory = await builtOnce("cert-manager", `cert-manager-${certManagerVersion()}`, 5, (staging) =>
    copySources("cert-manager", CERT_MANAGER, "deploy/crds/crd-*.yaml", join(staging, "crds")),
  );
  const crds = join(directory, "crds");
  return {
    controller: join(directory, "controller"),
    cainjector: join(directory, "cainjector"),
    // They are templates of a chart, but only in the values of labels.
    definitions: readdirSync(crds).map((file) =>
      readFileSync(join(crds, file), "utf8").replaceAll(/'\{\{.*\}\}'/g, "x"),
    ),
  };
}

const KRUISE = "github.com/openkruise/kruise";

/** The version of OpenKruise, without a leading `v`. */
export function kruiseVersion(): string {
  return pinnedVersion("kruise", KRUISE);
}

/** OpenKruise's controller manager, with the files of its repository that it needs. */
export interface Kruise {
  /** Path of the binary. */
  readonly manager: string;
  /** CRDs, YAML. */
  readonly definitions: readonly string[];
  /** Its webhook configurations, YAML. */
  readonly webhooks: string;
}

export async function ensureKruise(): Promise<Kruise> {
  const files = ["config/crd/bases/*.yaml", "config/webhook/manifests.yaml"];
  const directory = await builtOnce("kruise", `kruise-${kruiseVersion()}`, 4, (staging) =>
    copySources("kruise", KRUISE, files, join(staging, "config")),
  );
  const read = (file: string): string => readFileSync(join(directory, "config", file), "utf8");
  const crds = readdirSync(join(directory, "config")).filter((file) => file.includes(".kruise.io_"));
  return { manager: join(directory, "kruise"), definitions: crds.map(read), webhooks: read("manifests.yaml") };
}

/** Resolves with the path of promtool: the installed one, else one that is built. */
export function ensurePromtool(): Promise<string> {
  return ensureTool("promtool", "github.com/prometheus/prometheus", 4);
}

/** Resolves with the path of helm, as {@link ensurePromtool}. */
export function ensureHelm(): Promise<string> {
  return ensureTool("helm", "helm.sh/helm/v3", 3);
}

/** Resolves with the path of glua, the Lua that Argo CD runs health checks with, as {@link ensurePromtool}. */
export function ensureGlua(): Promise<string> {
  return ensureTool("glua", "github.com/yuin/gopher-lua", 1);
}

async function ensureTool(name: "promtool" | "helm" | "glua", path: string, minutes: number): Promise<string> {
  for (const directory of (process.env.PATH ?? "").split(delimiter)) {
    if (existsSync(join(directory, name))) return join(directory, name);
  }
  return join(await builtOnce(name, `${name}-v${pinnedVersion(name, path)}`, minutes), name);
}
