/**
 * Runs every command that the documentation tells readers to type, on a real cluster. Commands that change the cluster
 * run as server-side dry runs. `scripts/docs.test.ts` checks the npm commands. `PODSEIDON_TEST_SIZE=full` also applies
 * every overlay; otherwise overlays are only built, because `test/cluster/installation/demo-manifests.test.ts` applies
 * them.
 */

import { spawn } from "node:child_process";
import { copyFileSync, globSync, mkdirSync, readFileSync, symlinkSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import { loadAll } from "js-yaml";
import { afterAll, beforeAll, expect, test } from "vitest";
import { field } from "../../../scripts/control-plane/api-client.ts";
import { ensureBinaries } from "../../../scripts/control-plane/binaries/binaries.ts";
import { BARE } from "../../../scripts/control-plane/cluster.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { root } from "../../../scripts/root.ts";
import { deployment } from "../../support/cluster/deployments.ts";
import { createReadyPods } from "../../support/cluster/pods.ts";
import { waitUntilSettled } from "../../support/cluster/protectors.ts";
import { documentedCommands, goodCodes, harmless, type Stand } from "../../support/documentation.ts";

const NAMESPACE = "shop";
const NAME = "web";
const CELL = "default";
const NODE = "node-1";
const PODS = 4;
/** As the generator names it; the plugin also finds it by the name of its Deployment. */
const PROTECTOR = `deployment-${NAME}`;
/** A protector whose workload is lost. */
const ORPHAN = "deployment-gone";
/** Placeholders of the documentation, and their values here. */
const STAND: Stand = {
  ...{
    CONTEXT: "core",
    CORE: "core",
    "release NAME": `release ${ORPHAN}`,
    "podprotector NAME": `podprotector ${PROTECTOR}`,
  },
  ...{ NAME, NAMESPACE, POD: "web-0", NODE, CELL, "worker-2": CELL, "node-2": NODE },
};
/** Files that the documentation tells readers to create. */
const FILES = ["core-ca.crt", "podseidon-core.kubeconfig", "worker-ca.crt", "worker-1.kubeconfig"];
const FULL = process.env.PODSEIDON_TEST_SIZE === "full";
/** Kinds that the test environment creates itself, because it has no Service for those of the manifests. */
const REGISTRATIONS = ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"];

const pages = globSync("{README.md,docs/**/*.md}", { cwd: root })
  .sort()
  .filter((page) => typedIn(page).length > 0);

let environment: TestEnvironment;
let path: string;
/** Its context selects {@link NAMESPACE}, as the context of a reader selects the namespace of the workloads. */
let kubeconfig: string;
const done = new Map<string, Promise<Result>>();

interface Result {
  readonly code: number;
  readonly output: string;
}

/** The commands of a page that run here. `scripts/docs.test.ts` says what happens to the others. */
function typedIn(page: string): readonly string[] {
  const commands = documentedCommands(readFileSync(join(root, page), "utf8")).map(({ text }) => text);
  return commands.filter((text) => /^(kubectl |node dist\/|source <\(kubectl )/.test(text));
}

/** The command with its placeholders replaced. */
function typed(command: string): string {
  const files: Record<string, string> = {};
  for (const name of FILES) files[name] = join(environment.core.directory, name);
  // Readers make it as the one of the first worker cluster.
  files["worker-2.kubeconfig"] = join(environment.core.directory, "worker-1.kubeconfig");
  // A worker cluster's own folder, which readers make, is the overlay with another id.
  const shipped = command
    .replace("manifests/overlays/worker-2", "manifests/overlays/worker")
    .replace("doctor worker-2", "doctor CONTEXT");
  const line = harmless(shipped, "core", { ...STAND, ...files });
  const overlay = /^kubectl apply -k (manifests\/overlays\/\S+) --dry-run=server$/.exec(line)?.[1];
  const isApplied = FULL || overlay === undefined || overlay === "manifests/overlays/single-cluster";
  return isApplied ? line : `kubectl kustomize ${overlay}`;
}

/** Runs a line in a shell once. */
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
  environment = await TestEnvironment.start({ cells: [CELL], single: true, replicas: 1, cell: BARE });
  const bin = join(environment.core.directory, "bin");
  mkdirSync(bin);
  symlinkSync(process.execPath, join(bin, "node"));
  path = [join(root, "dist"), bin, dirname(kubectl), "/usr/bin", "/bin"].join(delimiter);
  const labels = { app: NAME };
  await environment.core.apply([
    { apiVersion: "v1", kind: "Namespace", metadata: { name: NAMESPACE } },
    { apiVersion: "v1", kind: "Node", metadata: { name: NODE } },
    // The controller-manager creates one in each namespace.
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
  await environment.core.apply([deployment(NAME, PODS, { namespace: NAMESPACE, labels })]);
  kubeconfig = join(environment.core.directory, "reader.kubeconfig");
  copyFileSync(environment.core.kubeconfig, kubeconfig);
  await environment.core.kubectl(["config", "set-context", "core", "--namespace", NAMESPACE], { kubeconfig });
  await environment.core.apply([
    protector(ORPHAN, "gone", { minAvailable: 1, minReadySeconds: 0, selector: { matchLabels: { app: "gone" } } }),
    protector(PROTECTOR, NAME, { minAvailable: PODS - 1, minReadySeconds: 0, selector: { matchLabels: labels } }),
  ]);
  await createReadyPods(environment.core, { namespace: NAMESPACE, prefix: NAME, count: PODS, labels });
  await waitUntilSettled(environment.core, NAMESPACE, PROTECTOR, PODS);
});

/** A protector as the generator makes it for a Deployment. */
function protector(name: string, deployment: string, spec: object): object {
  const sources = { name: deployment, group: "apps", kind: "Deployment", resource: "deployments" };
  const labels = Object.entries(sources).map(([key, value]) => [`podseidon.kubewharf.io/source-${key}`, value]);
  return {
    apiVersion: "podseidon.kubewharf.io/v1alpha1",
    kind: "PodProtector",
    metadata: {
      ...{ name, namespace: NAMESPACE, labels: Object.fromEntries(labels) },
      finalizers: ["podseidon.kubewharf.io/generator"],
    },
    spec,
  };
}

afterAll(() => environment?.stop());

/** Pages run in parallel, and the commands of each page in their order. */
test.concurrent.each(pages)("%s", async (page) => {
  const failed: string[] = [];
  for (const line of typedIn(page).map(typed)) {
    const { code, output } = await run(line);
    if (!goodCodes(line).includes(code)) failed.push(`${line}\nended with ${code}: ${output.slice(0, 1500)}`);
  }
  expect(failed).toEqual([]);
});

test("every metric of the webhook and the aggregator is in the reference", async () => {
  const page = readFileSync(join(root, "docs/metrics.md"), "utf8");
  const components = [environment.webhooks[0]?.component, environment.aggregators.get(CELL)];
  const texts = components.map(async (one) => await (await fetch(`${one?.healthUrl}/metrics`)).text());
  const served = (await Promise.all(texts)).flatMap((text) => [...text.matchAll(/^# HELP (podseidon_\w+) /gm)]);
  expect(served.length).toBeGreaterThan(80);
  expect(served.map(([, name = ""]) => name).filter((name) => !page.includes(`\`${name}\``))).toEqual([]);
});
