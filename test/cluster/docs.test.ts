/**
 * Every command that the documentation tells people to type is typed, on a real cluster; what would change it, as a dry
 * run of the server. Commands of npm are looked at by `scripts/docs.test.ts`. `PODSEIDON_TEST_SIZE=full` applies every
 * overlay, too; otherwise they are only made, because `test/cluster/demo-manifests.test.ts` applies them.
 */
import { spawn } from "node:child_process";
import { copyFileSync, globSync, mkdirSync, readFileSync, symlinkSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import { loadAll } from "js-yaml";
import { afterAll, beforeAll, expect, test } from "vitest";
import { field } from "../../scripts/control-plane/api-client.ts";
import { ensureBinaries } from "../../scripts/control-plane/binaries/binaries.ts";
import { documentedCommands, goodCodes, harmless, type Stand } from "../../scripts/docs.ts";
import { TestEnvironment } from "../../scripts/environment/environment.ts";
import { root } from "../../scripts/root.ts";
import { createReadyPods } from "../support/cluster/pods.ts";
import { createProtector, waitUntilSettled } from "../support/cluster/protectors.ts";

const NAMESPACE = "shop";
const NAME = "web";
const CELL = "default";
const NODE = "node-1";
const PODS = 4;
/** A protector whose workload vanished. */
const ORPHAN = "deployment-gone";
/** Words of the documentation, and what they stand for here. */
const STAND: Stand = {
  ...{ CONTEXT: "core", CORE: "core", "release NAME": `release ${ORPHAN}`, NAME, NAMESPACE, POD: "web-0", NODE, CELL },
  ...{ "worker-2": CELL, "deployment-web": NAME, "node-2": NODE },
};
/** Files that the documentation has its readers write. */
const FILES = ["core-ca.crt", "podseidon-core.kubeconfig"];
const FULL = process.env.PODSEIDON_TEST_SIZE === "full";
/** Made by the environment, which has no Service for the manifests' own to reach. */
const REGISTRATIONS = ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"];

const pages = globSync("{README.md,docs/**/*.md}", { cwd: root })
  .sort()
  .filter((page) => typedIn(page).length > 0);

let environment: TestEnvironment;
let path: string;
/** Its context is in {@link NAMESPACE}, as a reader's is where his workloads are. */
let kubeconfig: string;
const done = new Map<string, Promise<Result>>();

interface Result {
  readonly code: number;
  readonly output: string;
}

/** Commands of a page that are typed here; `scripts/docs.test.ts` says what becomes of the others. */
function typedIn(page: string): readonly string[] {
  const commands = documentedCommands(readFileSync(join(root, page), "utf8")).map(({ text }) => text);
  return commands.filter((text) => /^(kubectl |node dist\/|source <\(kubectl )/.test(text));
}

/** The command as it is typed here. */
function typed(command: string): string {
  const files = Object.fromEntries(FILES.map((name) => [name, join(environment.core.directory, name)]));
  const line = harmless(command, "core", { ...STAND, ...files });
  const overlay = /^kubectl apply -k (manifests\/overlays\/\S+) --dry-run=server$/.exec(line)?.[1];
  const isApplied = FULL || overlay === undefined || overlay === "manifests/overlays/single-cluster";
  return isApplied ? line : `kubectl kustomize ${overlay}`;
}

/** Runs a line as a shell does, once. */
function run(line: string): Promise<Result> {
  const known = done.get(line) ?? start(line);
  done.set(line, known);
  return known;
}

function start(line: string): Promise<Result> {
  const child = spawn("/bin/bash", ["-c", line], {
    cwd: root,
    env: { PATH: path, HOME: environment.core.directory, KUBECONFIG: kubeconfig },
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => {
      output += text;
    });
  }
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code) => resolve({ code: code ?? -1, output }));
  });
}

beforeAll(async () => {
  const { kubectl } = await ensureBinaries();
  environment = await TestEnvironment.start({
    cells: [CELL],
    single: true,
    replicas: 1,
    cell: {
      controllerManager: false,
      scheduler: false,
      kwok: false,
      flags: { "kube-apiserver": { "disable-admission-plugins": "ServiceAccount" } },
    },
  });
  const bin = join(environment.core.directory, "bin");
  mkdirSync(bin);
  symlinkSync(process.execPath, join(bin, "node"));
  path = [join(root, "dist"), bin, dirname(kubectl), "/usr/bin", "/bin"].join(delimiter);
  const labels = { app: NAME };
  const template = { metadata: { labels }, spec: { containers: [{ name: "app", image: "app:1" }] } };
  await environment.core.apply([
    { apiVersion: "v1", kind: "Namespace", metadata: { name: NAMESPACE } },
    { apiVersion: "v1", kind: "Node", metadata: { name: NODE } },
    // As the controller-manager makes one in each namespace.
    {
      apiVersion: "v1",
      kind: "ConfigMap",
      metadata: { name: "kube-root-ca.crt", namespace: "podseidon-system" },
      data: { "ca.crt": environment.core.identity.certificateAuthorityPem },
    },
  ]);
  const { stdout } = await environment.core.kubectl(["kustomize", join(root, "manifests/overlays/single-cluster")]);
  const installed = loadAll(stdout).filter((object) => !REGISTRATIONS.includes(String(field(object, "kind"))));
  await environment.core.apply(installed);
  await environment.core.apply([
    {
      apiVersion: "apps/v1",
      kind: "Deployment",
      metadata: { name: NAME, namespace: NAMESPACE, labels },
      spec: { replicas: PODS, selector: { matchLabels: labels }, template },
    },
  ]);
  kubeconfig = join(environment.core.directory, "reader.kubeconfig");
  copyFileSync(environment.core.kubeconfig, kubeconfig);
  await environment.core.kubectl(["config", "set-context", "core", "--namespace", NAMESPACE], { kubeconfig });
  await createOrphan();
  await createProtector(environment.core, NAMESPACE, NAME, {
    minAvailable: PODS - 1,
    selector: { matchLabels: labels },
  });
  await createReadyPods(environment.core, { namespace: NAMESPACE, prefix: NAME, count: PODS, labels });
  await waitUntilSettled(environment.core, NAMESPACE, NAME, PODS, 60_000);
});

async function createOrphan(): Promise<void> {
  const sources = { name: "gone", group: "apps", kind: "Deployment", resource: "deployments" };
  const labels = Object.entries(sources).map(([key, value]) => [`podseidon.kubewharf.io/source-${key}`, value]);
  await environment.core.apply([
    {
      apiVersion: "podseidon.kubewharf.io/v1alpha1",
      kind: "PodProtector",
      metadata: {
        ...{ name: ORPHAN, namespace: NAMESPACE, labels: Object.fromEntries(labels) },
        finalizers: ["podseidon.kubewharf.io/generator"],
      },
      spec: { minAvailable: 1, minReadySeconds: 0, selector: { matchLabels: { app: "gone" } } },
    },
  ]);
}

afterAll(async () => {
  await environment?.stop();
});

/** Pages side by side, the commands of each in its order. */
test.concurrent.each(pages)("%s", async (page) => {
  const failed: string[] = [];
  for (const line of typedIn(page).map(typed)) {
    const { code, output } = await run(line);
    if (!goodCodes(line).includes(code)) failed.push(`${line}\nended with ${code}: ${output.slice(0, 1500)}`);
  }
  expect(failed).toEqual([]);
});
