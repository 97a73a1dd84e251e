/** The apiserver of the oldest Kubernetes that is supported: built once, and kept in the cache. */
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Binaries, cacheDirectory, ensureBinaries } from "./binaries.ts";
import { exclusively, lockNameOf } from "./exclusive.ts";
import { buildOldestApiserver } from "./go-build.ts";
import { stderrProgress } from "./progress.ts";

const MODULE = fileURLToPath(new URL("build/oldest-kubernetes/go.mod", import.meta.url));

/** The version that its module pins, without a leading `v`. */
export function oldestKubernetes(): string {
  const found = /^require k8s\.io\/kubernetes v(\S+)|^\s*k8s\.io\/kubernetes v(\S+)/m.exec(
    readFileSync(MODULE, "utf8"),
  );
  const version = found?.[1] ?? found?.[2];
  if (version === undefined) throw new Error(`${MODULE} requires no Kubernetes`);
  return version;
}

/** Resolves with the usual binaries, but that apiserver; builds it with Go when it is not there, which takes some minutes once. */
export async function oldestBinaries(): Promise<Binaries> {
  const version = oldestKubernetes();
  const directory = join(dirname(cacheDirectory(process.env)), `kube-apiserver-${version}`);
  const progress = stderrProgress();
  const binaries = await ensureBinaries();
  return await exclusively(lockNameOf(directory), progress, async () => {
    const found = { ...binaries, "kube-apiserver": join(directory, "kube-apiserver") };
    if (existsSync(found["kube-apiserver"])) return found;
    const staging = `${directory}.unfinished`;
    rmSync(staging, { recursive: true, force: true });
    mkdirSync(staging, { recursive: true });
    progress.step(`building kube-apiserver ${version} with Go from sources (about 5 minutes, once)`);
    await buildOldestApiserver(staging, version, progress);
    renameSync(staging, directory);
    return found;
  });
}
