import { spawn } from "node:child_process";
import { copyFileSync, globSync, mkdirSync, renameSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { BuildProgress } from "./progress.ts";
import { theReaper } from "./reaper.ts";
import { goArchitecture, VERSIONS } from "./versions.ts";

/** Builds the binaries with Go from modules under `build/`, whose go.sum pins every source file that goes into them. */

interface Module {
  readonly directory: string;
  readonly packages: readonly string[];
  readonly linkFlags: string;
}

const VERSION_PACKAGE = "k8s.io/component-base/version";

/** Without these the apiserver says that it is v0.0.0, and clients that negotiate by version take the wrong way. */
function kubernetesLinkFlags(version: string): string {
  const [major, minor] = version.split(".");
  const set = (name: string, value = ""): string => `-X ${VERSION_PACKAGE}.${name}=${value}`;
  return ["-s -w", set("gitVersion", `v${version}`), set("gitMajor", major), set("gitMinor", minor)].join(" ");
}

/** One module for all, so that what they have in common (client-go, the API types) is compiled once. */
const CONTROL_PLANE: Module = {
  directory: fileURLToPath(new URL("build/kubernetes", import.meta.url)),
  packages: [
    "go.etcd.io/etcd/server/v3",
    "k8s.io/kubernetes/cmd/kube-apiserver",
    "k8s.io/kubernetes/cmd/kube-controller-manager",
    "k8s.io/kubernetes/cmd/kube-scheduler",
    "k8s.io/kubernetes/cmd/kubectl",
    "sigs.k8s.io/kwok/cmd/kwok",
  ],
  linkFlags: kubernetesLinkFlags(VERSIONS.kubernetes),
};

/** Linking a large binary says nothing for a minute on a slow machine; ten minutes of silence are a hang. */
const SILENCE_LIMIT_MS = 10 * 60_000;
const KEPT_MESSAGES = 12;
/** Percent. Two compilers at a time then hold some two gigabytes at most. */
const COMPILER_GOGC = "400";
const PACKAGE_LINE = /^[a-z0-9][\w.~-]*(\/[\w.~-]+)*$/i;

/** The module that promtool comes from; its version is in its go.mod. */
const PROMTOOL: Module = {
  directory: fileURLToPath(new URL("build/promtool", import.meta.url)),
  packages: ["github.com/prometheus/prometheus/cmd/promtool"],
  linkFlags: "-s -w",
};

/** Puts the kube-apiserver of `version`, which is the one that its module pins, into `directory`; rejects like {@link goBuild}. */
export async function buildOldestApiserver(directory: string, version: string, progress: BuildProgress): Promise<void> {
  const module: Module = {
    directory: fileURLToPath(new URL("build/oldest-kubernetes", import.meta.url)),
    packages: ["k8s.io/kubernetes/cmd/kube-apiserver"],
    linkFlags: kubernetesLinkFlags(version),
  };
  await buildModule(module, directory, progress);
}

/** The module that cert-manager's commands and the definitions of its kinds come from. */
export const CERT_MANAGER = "github.com/cert-manager/cert-manager";

/** Puts cert-manager's controller and its CA injector into `directory`, and its CRDs into `crds` therein; rejects like {@link goBuild}. */
export async function buildCertManager(directory: string, progress: BuildProgress): Promise<void> {
  const module: Module = {
    directory: fileURLToPath(new URL("build/cert-manager", import.meta.url)),
    packages: [`${CERT_MANAGER}/cmd/controller`, `${CERT_MANAGER}/cmd/cainjector`],
    linkFlags: "-s -w",
  };
  await buildModule(module, directory, progress);
  const [sources] = await go(["list", "-m", "-f", "{{.Dir}}", CERT_MANAGER], module.directory, (line) =>
    progress.detail(line),
  );
  if (sources === undefined) throw new Error(`the sources of ${CERT_MANAGER} are not in the module cache`);
  mkdirSync(join(directory, "crds"));
  for (const file of globSync("crd-*.yaml", { cwd: join(sources, "deploy/crds") }))
    copyFileSync(join(sources, "deploy/crds", file), join(directory, "crds", file));
}

/** Puts promtool into `directory`; rejects like {@link goBuild}. */
export async function buildPromtool(directory: string, progress: BuildProgress): Promise<void> {
  await buildModule(PROMTOOL, directory, progress);
}

/** Puts all binaries into `directory`. Rejects with Go's last messages, or with what to install when there is no Go. */
export async function goBuild(directory: string, progress: BuildProgress): Promise<void> {
  const cores = navigator.hardwareConcurrency;
  progress.step(`building with Go from sources (about ${cores > 2 ? "3" : "4 to 6"} minutes on ${cores} cores, once)`);
  await buildModule(CONTROL_PLANE, directory, progress);
  // Go names a command after the last element of its path that is not a version.
  renameSync(join(directory, "server"), join(directory, "etcd"));
}

async function buildModule(module: Module, directory: string, progress: BuildProgress): Promise<void> {
  const names = module.packages.map((path) => path.split("/").at(-1)).join(", ");
  const packages = await go(["list", "-deps", ...module.packages], module.directory, (line) => progress.detail(line));
  const total = packages.length;
  let compiled = 0;
  const what = module === CONTROL_PLANE ? "etcd, Kubernetes and KWOK" : names;
  progress.step(`compiling ${what} (${total} packages at most)`);
  const out = `${directory}/`;
  await go(["build", "-v", "-o", out, "-ldflags", module.linkFlags, ...module.packages], module.directory, (line) => {
    if (PACKAGE_LINE.test(line)) compiled++;
    progress.detail(PACKAGE_LINE.test(line) ? `compiled ${compiled} of ${total} packages, now ${line}` : line);
  });
}

/** Runs go and resolves with the lines of its standard output; `onLine` gets those of standard error. */
function go(args: readonly string[], directory: string, onLine: (line: string) => void): Promise<string[]> {
  const child = spawn("go", args, {
    cwd: directory,
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
    env: {
      ...process.env,
      ...theReaper().environment,
      // What the user has set for work of their own must not change what is built here.
      GOFLAGS: "-trimpath -mod=readonly -buildvcs=false",
      GOWORK: "off",
      GO111MODULE: "on",
      GOOS: "linux",
      GOARCH: goArchitecture(),
      CGO_ENABLED: "0",
      // Compilers live for seconds: they need not collect what they leave, which a tenth of their time went to.
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
      reject(error.code === "ENOENT" ? new Error("go is not on PATH (any Go from 1.21 on will do)") : error);
    });
    child.on("close", (code, signal) => {
      clearTimeout(timer);
      if (code === 0) resolve(output);
      else if (silent) reject(new Error(`go ${args[0]} said nothing for ${SILENCE_LIMIT_MS / 60_000} minutes`));
      else reject(new Error(`go ${args[0]} ended with ${signal ?? code}: ${messages.join("\n")}`));
    });
  });
}
