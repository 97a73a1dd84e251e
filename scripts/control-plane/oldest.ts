/** The apiserver of the oldest Kubernetes that is supported: built once, and kept in the cache. */
import { join } from "node:path";
import { type Binaries, ensureBinaries } from "./binaries.ts";
import { builtOnce, pinnedVersion } from "./built-once.ts";
import { buildOldestApiserver } from "./go-build.ts";

/** The version that its module pins, without a leading `v`. */
export function oldestKubernetes(): string {
  return pinnedVersion("oldest-kubernetes", "k8s.io/kubernetes");
}

/** Resolves with the usual binaries, but that apiserver; builds it with Go when it is not there, which takes some minutes once. */
export async function oldestBinaries(): Promise<Binaries> {
  const version = oldestKubernetes();
  const binaries = await ensureBinaries();
  const directory = await builtOnce({
    name: `kube-apiserver-${version}`,
    title: `kube-apiserver ${version} with Go from sources (about 5 minutes, once)`,
    build: (staging, progress) => buildOldestApiserver(staging, version, progress),
  });
  return { ...binaries, "kube-apiserver": join(directory, "kube-apiserver") };
}
