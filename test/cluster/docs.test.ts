/** Every kubectl command that the documentation tells people to type is typed, on a real cluster; what would change it, as a dry run. */
import { spawn } from "node:child_process";
import { globSync, mkdirSync, readFileSync, symlinkSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import { loadAll } from "js-yaml";
import { afterAll, beforeAll, expect, test } from "vitest";
import { field } from "../../scripts/control-plane/api-client.ts";
import { ensureBinaries } from "../../scripts/control-plane/binaries.ts";
import { commandsOf, goodCodes, harmless, type Stand } from "../../scripts/docs.ts";
import { Estate } from "../../scripts/product/estate.ts";
import { root } from "../../scripts/root.ts";
import { createReadyPods, eachAtMost } from "../support/pods.ts";
import { createProtector, waitUntilSettled } from "../support/protectors.ts";

const NAMESPACE = "shop";
const NAME = "web";
const CELL = "default";
const NODE = "node-1";
const PODS = 4;
/** What words of the documentation stand for here. */
const STAND: Stand = { CONTEXT: "core", CORE: "core", NAME, NAMESPACE, POD: "web-0", NODE, CELL, "worker-2": CELL };
const AT_ONCE = 3;
/** Made by the estate, which has no Service for the manifests' own to reach. */
const REGISTRATIONS = ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"];

const pages = globSync("{README.md,docs/**/*.md}", { cwd: root })
  .sort()
  .filter((page) => kubectlOf(page).length > 0);

let estate: Estate;
let path: string;
const done = new Map<string, Promise<Result>>();

interface Result {
  readonly code: number;
  readonly output: string;
}

function kubectlOf(page: string): readonly string[] {
  const commands = commandsOf(readFileSync(join(root, page), "utf8")).map(({ text }) => text);
  return commands.filter((text) => text.startsWith("kubectl "));
}

/** Runs a line as a shell does, once. */
function run(line: string): Promise<Result> {
  const known = done.get(line) ?? start(line);
  done.set(line, known);
  return known;
}

function start(line: string): Promise<Result> {
  const child = spawn("/bin/sh", ["-c", line], {
    cwd: root,
    env: { PATH: path, HOME: estate.core.directory, KUBECONFIG: estate.core.kubeconfig },
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
  estate = await Estate.start({
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
  const bin = join(estate.core.directory, "bin");
  mkdirSync(bin);
  symlinkSync(process.execPath, join(bin, "node"));
  path = [join(root, "dist"), bin, dirname(kubectl), "/usr/bin", "/bin"].join(delimiter);
  const labels = { app: NAME };
  const template = { metadata: { labels }, spec: { containers: [{ name: "app", image: "app:1" }] } };
  await estate.core.apply([
    { apiVersion: "v1", kind: "Namespace", metadata: { name: NAMESPACE } },
    { apiVersion: "v1", kind: "Node", metadata: { name: NODE } },
  ]);
  const { stdout } = await estate.core.kubectl(["kustomize", join(root, "manifests/overlays/single-cluster")]);
  const installed = loadAll(stdout).filter((object) => !REGISTRATIONS.includes(String(field(object, "kind"))));
  await estate.core.apply(installed);
  await estate.core.apply([
    {
      apiVersion: "apps/v1",
      kind: "Deployment",
      metadata: { name: NAME, namespace: NAMESPACE, labels },
      spec: { replicas: PODS, selector: { matchLabels: labels }, template },
    },
  ]);
  await createProtector(estate.core, NAMESPACE, NAME, { minAvailable: PODS - 1, selector: { matchLabels: labels } });
  await createReadyPods(estate.core, { namespace: NAMESPACE, prefix: NAME, count: PODS, labels });
  await waitUntilSettled(estate.core, NAMESPACE, NAME, PODS, 60_000);
});

afterAll(async () => {
  await estate?.stop();
});

test.each(pages)("%s", async (page) => {
  const failed: string[] = [];
  await eachAtMost(AT_ONCE, kubectlOf(page), async (command) => {
    const line = harmless(command, "core", STAND);
    const { code, output } = await run(line);
    if (!goodCodes(line).includes(code)) failed.push(`${line}\nended with ${code}: ${output.slice(0, 1500)}`);
  });
  expect(failed).toEqual([]);
});
