/** Builds binaries with Go from the modules under `build/`, whose go.sum pins every source file that goes into them. */
import { spawn } from "node:child_process";
import { copyFileSync, globSync, mkdirSync, readFileSync, renameSync } from "node:fs";
import { basename, join } from "node:path";
import { createInterface } from "node:readline";
import { theReaper } from "../reaper.ts";
import type { BuildProgress } from "./progress.ts";
import { goArchitecture, VERSIONS } from "./versions.ts";

const VERSION_PACKAGE = "k8s.io/component-base/version";

/**
 * The version, without a leading `v`, at which the go.mod of `build/MODULE` requires a path. Throws when it does not.
 */
export function pinnedVersion(module: ModuleName, path: string): string {
  const file = join(directoryOf(module), "go.mod");
  const words = readFileSync(file, "utf8").split(/\s+/);
  const version = words[words.findIndex((word, index) => word === path && words[index + 1]?.startsWith("v")) + 1];
  if (!version?.startsWith("v")) throw new Error(`${file} does not require ${path}`);
  return version.slice(1);
}

/** Without these flags, the apiserver reports v0.0.0, which misleads clients that negotiate by version. */
function kubernetesLinkFlags(version: string): string {
  const [major, minor] = version.split(".");
  const set = (name: string, value = ""): string => `-X ${VERSION_PACKAGE}.${name}=${value}`;
  return ["-s -w", set("gitVersion", `v${version}`), set("gitMajor", major), set("gitMinor", minor)].join(" ");
}

interface Module {
  readonly packages: readonly string[];
  /** The version of Kubernetes to build; undefined for other modules. */
  readonly kubernetes?: () => string;
}

const MODULES = {
  // One module for all, so that shared packages (client-go, the API types) are compiled once.
  kubernetes: {
    packages: [
      "go.etcd.io/etcd/server/v3",
      "k8s.io/kubernetes/cmd/kube-apiserver",
      "k8s.io/kubernetes/cmd/kube-controller-manager",
      "k8s.io/kubernetes/cmd/kube-scheduler",
      "k8s.io/kubernetes/cmd/kubectl",
      "sigs.k8s.io/kwok/cmd/kwok",
    ],
    kubernetes: (): string => VERSIONS.kubernetes,
  },
  "oldest-kubernetes": {
    packages: ["k8s.io/kubernetes/cmd/kube-apiserver"],
    kubernetes: (): string => pinnedVersion("oldest-kubernetes", "k8s.io/kubernetes"),
  },
  "cert-manager": {
    packages: [
      "github.com/cert-manager/cert-manager/cmd/controller",
      "github.com/cert-manager/cert-manager/cmd/cainjector",
    ],
  },
  kruise: { packages: ["github.com/openkruise/kruise"] },
  descheduler: { packages: ["sigs.k8s.io/descheduler/cmd/descheduler"] },
  "argo-rollouts": { packages: ["github.com/argoproj/argo-rollouts/cmd/rollouts-controller"] },
  karpenter: { packages: ["sigs.k8s.io/karpenter/kwok"] },
  "kustomize-controller": { packages: ["github.com/fluxcd/kustomize-controller"] },
  "vertical-pod-autoscaler": { packages: ["k8s.io/autoscaler/vertical-pod-autoscaler/pkg/updater"] },
  helm: { packages: ["helm.sh/helm/v3/cmd/helm"] },
  glua: { packages: ["github.com/yuin/gopher-lua/cmd/glua"] },
  promtool: { packages: ["github.com/prometheus/prometheus/cmd/promtool"] },
} satisfies Readonly<Record<string, Module>>;
export type ModuleName = keyof typeof MODULES;

function directoryOf(module: ModuleName): string {
  return join(import.meta.dirname, "build", module);
}

/** Linking a large binary prints nothing for a minute on a slow machine; ten minutes of silence are a hang. */
const SILENCE_LIMIT_MS = 10 * 60_000;
const KEPT_MESSAGES = 12;
/**
 * Percent. Compilers run for seconds, and need little garbage collection; two of them use some two gigabytes at most.
 */
const COMPILER_GOGC = "400";
const PACKAGE_LINE = /^[a-z0-9][\w.~-]*(\/[\w.~-]+)*$/i;

/** Puts all binaries of a control plane into `directory`; rejects like {@link buildModule}. */
export async function buildControlPlane(directory: string, progress: BuildProgress): Promise<void> {
  const cores = navigator.hardwareConcurrency;
  progress.step(`building with Go from sources (about ${cores > 2 ? "3" : "4 to 6"} minutes on ${cores} cores, once)`);
  await buildModule("kubernetes", directory, progress);
  // Go names a command after the last element of its path that is not a version.
  renameSync(join(directory, "server"), join(directory, "etcd"));
}

/** Copies files of a required module of `build/MODULE` into a new flat directory. */
export async function copySources(
  module: ModuleName,
  path: string,
  files: string | readonly string[],
  directory: string,
): Promise<void> {
  const [sources] = await go(["list", "-m", "-f", "{{.Dir}}", path], module, () => {});
  if (sources === undefined) throw new Error(`the sources of ${path} are not in the module cache`);
  mkdirSync(directory);
  for (const file of globSync(files, { cwd: sources }))
    copyFileSync(join(sources, file), join(directory, basename(file)));
}

/**
 * Puts the binaries of a module into `directory`. Rejects with Go's last messages, or with what to install when there
 * is no Go.
 */
export async function buildModule(name: ModuleName, directory: string, progress: BuildProgress): Promise<void> {
  const { packages, kubernetes }: Module = MODULES[name];
  const dependencies = await go(["list", "-deps", ...packages], name, (line) => progress.detail(line));
  const total = dependencies.length;
  const names = packages.map((path) => path.split("/").at(-1)).join(", ");
  progress.step(`compiling ${name === "kubernetes" ? "etcd, Kubernetes and KWOK" : names} (${total} packages at most)`);
  const linkFlags = kubernetes === undefined ? "-s -w" : kubernetesLinkFlags(kubernetes());
  let compiled = 0;
  await go(["build", "-v", "-o", `${directory}/`, "-ldflags", linkFlags, ...packages], name, (line) => {
    if (PACKAGE_LINE.test(line)) compiled++;
    progress.detail(PACKAGE_LINE.test(line) ? `compiled ${compiled} of ${total} packages, now ${line}` : line);
  });
}

/** Runs go in a module and resolves with the lines of its standard output; `onLine` gets those of standard error. */
function go(args: readonly string[], module: ModuleName, onLine: (line: string) => void): Promise<string[]> {
  const child = spawn("go", args, {
    cwd: directoryOf(module),
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
    env: {
      ...process.env,
      ...theReaper().environment,
      // The user's other settings must not change this build.
      GOFLAGS: "-trimpath -mod=readonly -buildvcs=false",
      GOWORK: "off",
      GO111MODULE: "on",
      GOOS: "linux",
      GOARCH: goArchitecture(),
      CGO_ENABLED: "0",
      GOGC: COMPILER_GOGC,
    },
  });
  const output: string[] = [];
  const messages: string[] = [];
  return new Promise((resolve, reject) => {
    let silent = false;
    const kill = (): void => {
      silent = true;
      child.kill("SIGKILL");
    };
    let timer = setTimeout(kill, SILENCE_LIMIT_MS);
    createInterface({ input: child.stdout }).on("line", (line) => output.push(line));
    createInterface({ input: child.stderr }).on("line", (line) => {
      clearTimeout(timer);
      timer = setTimeout(kill, SILENCE_LIMIT_MS);
      if (!PACKAGE_LINE.test(line)) messages.push(line);
      if (messages.length > KEPT_MESSAGES) messages.shift();
      onLine(line);
    });
    child.on("error", (error: NodeJS.ErrnoException) => {
      clearTimeout(timer);
      reject(
        error.code === "ENOENT"
          ? new Error("go is not on PATH (Go 1.26, or one from 1.21 on that may fetch it)")
          : error,
      );
    });
    child.on("close", (code, signal) => {
      clearTimeout(timer);
      if (code === 0) resolve(output);
      else if (silent) reject(new Error(`go ${args[0]} said nothing for ${SILENCE_LIMIT_MS / 60_000} minutes`));
      else reject(new Error(`go ${args[0]} ended with ${signal ?? code}: ${messages.join("\n")}`));
    });
  });
}
