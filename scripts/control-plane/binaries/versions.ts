/**
 * The binaries of a control plane, at the versions that the project is tested with. A new version also needs changes in
 * the modules under `build/` and the checksums in `download.ts`.
 */

export const VERSIONS = { kubernetes: "1.36.3", etcd: "3.6.8", kwok: "0.8.0" } as const;

export type ReleaseName = keyof typeof VERSIONS;

export const BINARY_NAMES = [
  "etcd",
  "kube-apiserver",
  "kube-controller-manager",
  "kube-scheduler",
  "kubectl",
  "kwok",
] as const;

export type BinaryName = (typeof BINARY_NAMES)[number];

/** How to get the version of each binary: the arguments, and the position of the version in the output. */
export const VERSION_QUESTIONS: Readonly<
  Record<BinaryName, { readonly release: ReleaseName; readonly args: readonly string[]; readonly answer: RegExp }>
> = {
  etcd: { release: "etcd", args: ["--version"], answer: /^etcd Version: (\S+)/m },
  "kube-apiserver": { release: "kubernetes", args: ["--version"], answer: /^Kubernetes v(\S+)/m },
  "kube-controller-manager": { release: "kubernetes", args: ["--version"], answer: /^Kubernetes v(\S+)/m },
  "kube-scheduler": { release: "kubernetes", args: ["--version"], answer: /^Kubernetes v(\S+)/m },
  kubectl: { release: "kubernetes", args: ["version", "--client", "-o", "json"], answer: /"gitVersion": "v([^"]+)"/ },
  kwok: { release: "kwok", args: ["--version"], answer: /^kwok version v?(\S+)/m },
};

/** The machine's architecture by the name that Go and the releases use. Throws for one without releases. */
export function goArchitecture(): "amd64" | "arm64" {
  if (process.platform === "linux" && process.arch === "x64") return "amd64";
  if (process.platform === "linux" && process.arch === "arm64") return "arm64";
  throw new Error(`a control plane runs on Linux on amd64 or arm64; this is ${process.platform} on ${process.arch}`);
}
