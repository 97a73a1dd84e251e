/** `kubectl podseidon`, run by kubectl itself, on a core cluster and a cell with the built processes. */
import { spawn } from "node:child_process";
import { mkdirSync, readFileSync, symlinkSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { field } from "../../scripts/control-plane/api-client.ts";
import { ensureBinaries } from "../../scripts/control-plane/binaries/binaries.ts";
import type { ClusterOptions } from "../../scripts/control-plane/cluster.ts";
import { Component } from "../../scripts/environment/component.ts";
import { TestEnvironment } from "../../scripts/environment/environment.ts";
import { root } from "../../scripts/root.ts";
import { setReady } from "../support/cluster/pods.ts";
import { readProtector, reservationCount } from "../support/cluster/protectors.ts";
import { metricsOf } from "../support/documentation.ts";

const NAMESPACE = "shop";
const NAME = "deployment-web";
const NODE = "node-1";
const PODS = ["web-0", "web-1", "web-2", "web-3"];
const SETTLE_MS = 60_000;
const LABELS = { app: "web" };

const bare: ClusterOptions = {
  controllerManager: false,
  scheduler: false,
  kwok: false,
  flags: { "kube-apiserver": { "disable-admission-plugins": "ServiceAccount" } },
};

let estate: TestEnvironment;
let generator: Component;
let kubectl: string;
let path: string;

interface Result {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs `kubectl podseidon ...` with both clusters in KUBECONFIG, one file each. */
function plugin(...args: readonly string[]): Promise<Result> {
  return run(kubectl, ["podseidon", ...args]);
}

function run(command: string, args: readonly string[]): Promise<Result> {
  const files = [estate.cell("cell").kubeconfig, estate.core.kubeconfig];
  const child = spawn(command, [...args], {
    env: { PATH: path, HOME: estate.core.directory, KUBECONFIG: files.join(delimiter), PODSEIDON_CORE_CONTEXT: "core" },
  });
  let stdout = "";
  let stderr = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    stdout += text;
  });
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    stderr += text;
  });
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code) => resolve({ code: code ?? -1, stdout, stderr }));
  });
}

/** What an operator sees, for whoever reads the test's output. */
function show(command: string, { stdout }: Result): void {
  process.stdout.write(`$ kubectl podseidon ${command}\n${stdout}\n`);
}

async function why(pod: string): Promise<Result> {
  return await plugin("why", pod, "-n", NAMESPACE);
}

async function createPod(name: string): Promise<void> {
  const cell = estate.cell("cell");
  const metadata = { name, namespace: NAMESPACE, labels: LABELS };
  const spec = { nodeName: NODE, containers: [{ name: "app", image: "app:1" }] };
  await cell.apply([{ apiVersion: "v1", kind: "Pod", metadata, spec }]);
  await setReady(cell, NAMESPACE, name, true);
}

async function untilCounted(available: number): Promise<void> {
  await estate.core.waitFor(
    `${available} pods to be counted`,
    async () => {
      const protector = await readProtector(estate.core, NAMESPACE, NAME);
      const [cell] = protector.status?.cells ?? [];
      return cell?.aggregation?.availableReplicas === available && reservationCount(protector) === 0;
    },
    SETTLE_MS,
  );
}

const deployment = {
  apiVersion: "apps/v1",
  kind: "Deployment",
  metadata: { name: "web", namespace: NAMESPACE, labels: { "podseidon.kubewharf.io/protect": "true" } },
  spec: {
    replicas: PODS.length,
    strategy: { type: "RollingUpdate", rollingUpdate: { maxUnavailable: "25%" } },
    selector: { matchLabels: LABELS },
    template: { metadata: { labels: LABELS }, spec: { containers: [{ name: "app", image: "app:1" }] } },
  },
};

beforeAll(async () => {
  kubectl = (await ensureBinaries()).kubectl;
  estate = await TestEnvironment.start({ cells: ["cell"], replicas: 1, settle: "20s", core: bare, cell: bare });
  const bin = join(estate.core.directory, "bin");
  mkdirSync(bin);
  symlinkSync(process.execPath, join(bin, "node"));
  path = [join(root, "dist"), bin, dirname(kubectl), "/usr/bin", "/bin"].join(delimiter);
  const cell = estate.cell("cell");
  const space = { apiVersion: "v1", kind: "Namespace", metadata: { name: NAMESPACE } };
  await Promise.all([
    estate.core.apply([space]),
    cell.apply([space, { apiVersion: "v1", kind: "Node", metadata: { name: NODE } }]),
  ]);
  await estate.core.apply([deployment]);
  generator = await Component.start({
    kind: "generator",
    name: "generator",
    directory: join(estate.core.directory, "product"),
    args: ["--kubeconfig", estate.core.kubeconfig, "--leader-elect=false"],
  });
  for (const pod of PODS) await createPod(pod);
  await estate.core.waitFor("the protector", async () => {
    const raw = await estate.core.admin.request(
      "GET",
      `/apis/podseidon.kubewharf.io/v1alpha1/namespaces/${NAMESPACE}/podprotectors/${NAME}`,
    );
    return raw.status === 200;
  });
  await untilCounted(PODS.length);
});

afterAll(async () => {
  await generator?.stop();
  await estate?.stop();
});

describe("while all is well", () => {
  test("status has a line for each protector", async () => {
    const { code, stdout } = await plugin("status", "-A");
    expect(code).toBe(0);
    const [head, line] = stdout.split("\n");
    expect(head?.split(/\s{2,}/)).toEqual([
      "NAMESPACE",
      "NAME",
      "REQUIRED",
      "AVAILABLE",
      "RESERVED",
      "ALLOWED",
      "CELLS",
      "OLDEST",
      "STATE",
    ]);
    expect(line?.split(/\s{2,}/)).toEqual([NAMESPACE, NAME, "3", "4/4", "0", "1", "1/1", "-", "ok"]);
  });

  test("status of one shows its source, cells and conditions", async () => {
    const result = await plugin("status", NAME, "-n", NAMESPACE);
    const { stdout } = result;
    show(`status ${NAME} --namespace ${NAMESPACE}`, result);
    expect(stdout).toContain("Source:         Deployment web");
    expect(stdout).toMatch(/cell +4\/4 +0 +\d+s +/);
    expect(stdout).toContain("Reservations: none");
    expect(stdout).toMatch(/Healthy +True +EnoughAvailable/);
  });

  test("why says that a deletion would be allowed, and deletes nothing", async () => {
    const { code, stdout } = await why("web-0");
    expect(code).toBe(0);
    expect(stdout).toContain("Deletion:   yes: it would be allowed now");
    expect(stdout).toContain(`PodProtector ${NAMESPACE}/${NAME}   agrees: there is quota`);
    expect(reservationCount(await readProtector(estate.core, NAMESPACE, NAME))).toBe(0);
  });

  test("why answers programs in JSON", async () => {
    const { stdout } = await plugin("why", "web-0", "-n", NAMESPACE, "--evict", "-o", "json");
    expect(JSON.parse(stdout)).toMatchObject({
      kind: "evict",
      cell: "cell",
      answer: { verdict: "admitted" },
      opinions: [{ allowed: true, view: { name: NAME, required: 3, available: 4 } }],
    });
  });

  test("gates names a closed readiness gate, and who wrote it", async () => {
    const cell = estate.cell("cell");
    const pod = `/api/v1/namespaces/${NAMESPACE}/pods/cold`;
    const spec = { readinessGates: [{ conditionType: "example.com/warm" }], containers: [{ name: "a", image: "a" }] };
    await cell.apply([{ apiVersion: "v1", kind: "Pod", metadata: { name: "cold", namespace: NAMESPACE }, spec }]);
    const conditions = [{ type: "example.com/warm", status: "False", reason: "Cold" }];
    const contentType = "application/strategic-merge-patch+json";
    await cell.admin.call("PATCH", `${pod}/status?fieldManager=warmer`, { status: { conditions } }, { contentType });
    const { code, stdout } = await plugin("gates", "cold", "-n", NAMESPACE);
    expect(stdout).toMatch(/example\.com\/warm +closed +False +\S+ +warmer +Cold/);
    expect(code).toBe(1);
    await cell.admin.call("DELETE", pod);
  });

  test("drain-check tells which pods of the node go at once and which wait", async () => {
    const { code, stdout } = await plugin("drain-check", NODE, "-o", "json");
    expect(code).toBe(0);
    const { pods } = JSON.parse(stdout);
    expect(pods.map(({ now }: { now: string }) => now)).toEqual(PODS.map(() => "admitted"));
    expect(pods.map(({ together }: { together: string }) => together)).toEqual(["goes", "waits", "waits", "waits"]);
  });

  test("doctor finds the installation in order", async () => {
    const result = await plugin("doctor");
    const { code, stdout } = result;
    show("doctor", result);
    expect(stdout).not.toContain("FAIL");
    expect(code).toBe(0);
    for (const line of [
      /^ok +core +crd +keeps every field/m,
      /^ok +core +protectors +1 protector, none in trouble/m,
      /^ok +core +cell cell +counted in 1 protector, heartbeat \d+s ago/m,
      /^ok +cell +webhook configuration +asks as cell cell, refuses when it gets no answer/m,
      /^(ok|WARN) +cell +CA in the webhook configuration +(valid for|expires in)/m,
      /^ok +cell +webhook +answers/m,
    ])
      expect(stdout).toMatch(line);
  });

  test("words are completed, by the plugin and by kubectl", async () => {
    const own = await run("kubectl-podseidon", ["__complete", "why", "-n", NAMESPACE, "web-"]);
    expect(own.stdout.trim().split("\n")).toEqual([...PODS, ":4"]);
    const asked = await run(kubectl, ["__complete", "podseidon", "drain-check", ""]);
    expect(asked.stdout.split("\n")).toContain(NODE);
    expect((await run("kubectl-podseidon", ["__complete", "sus"])).stdout).toBe("suspend\n:4\n");
  });

  test("the processes have every metric that alerts and dashboard ask for", async () => {
    const aggregator = estate.aggregators.get("cell");
    const components = [...estate.webhooks.map(({ component }) => component), generator, aggregator];
    const pages = await Promise.all(
      components.map(async (one) => (one === undefined ? "" : await (await fetch(`${one.healthUrl}/metrics`)).text())),
    );
    const declared = new Set(
      pages
        .join("")
        .match(/^# TYPE podseidon_\S+/gm)
        ?.map((line) => line.slice(7 + "podseidon_".length)),
    );
    const text = ["rules.yaml", "dashboard.json"].map((file) =>
      readFileSync(join(root, "manifests/monitoring", file), "utf8"),
    );
    const asked = metricsOf(text.join("\n"));
    // What makes certificates does not run here, so that nobody keeps the webhook configuration's authorities either.
    const here = asked.filter((name) => !name.startsWith("certificates_") && name !== "registration_ca_current");
    expect(here.filter((name) => !declared.has(name))).toEqual([]);
  });

  test.each<[string, string[], string]>([
    ["a context that is not there", ["status", "--context", "nowhere"], 'no context "nowhere"'],
    ["a pod that is not there", ["why", "web-9", "-n", NAMESPACE], `there is no pod ${NAMESPACE}/web-9`],
    ["a flag that is not there", ["status", "--fast"], "see kubectl podseidon status --help"],
    ["a cell that nobody counts", ["remove-cell", "moon", "-A"], "counts a cell moon"],
  ])("%s is an error that says what to do", async (_, args, text) => {
    const { code, stderr } = await plugin(...args);
    expect(stderr).toContain(text);
    expect(code).toBe(2);
  });
});

describe("when quota is used", () => {
  test("why names the disruption that holds it, and since when", async () => {
    // Nobody accounts for the deletion, so that its reservation stays.
    await estate.aggregators.get("cell")?.stop();
    const cell = estate.cell("cell");
    // Every client repeats a request after a busy response, as when a loaded core did not answer in time.
    const path = `/api/v1/namespaces/${NAMESPACE}/pods/web-3?gracePeriodSeconds=0`;
    await cell.waitFor(
      "the deletion to be let go",
      async () => (await cell.admin.request("DELETE", path)).status < 300,
    );
    const result = await why("web-1");
    const { code, stdout } = result;
    show(`why web-1 --namespace ${NAMESPACE}`, result);
    show("status --all-namespaces", await plugin("status", "-A"));
    show(`drain-check ${NODE}`, await plugin("drain-check", NODE));
    expect(code).toBe(1);
    expect(stdout).toContain("Deletion:   no: it would be denied now; this passes by itself");
    expect(stdout).toContain("refuses: the spare pods are reserved by disruptions under way");
    expect(stdout).toMatch(/Held by, the oldest first:\n.*\n +cell +web-3 +DELETE +1 +\d+s ago +\d+s ago/);
    expect((await plugin("status", "-n", NAMESPACE)).stdout).toMatch(/deployment-web +3 +4\/4 +1 +0 +1\/1 +\d+s +busy/);
    await estate.startAggregator("cell");
    await untilCounted(3);
  });

  test("why names the pods that are missing", async () => {
    await setReady(estate.cell("cell"), NAMESPACE, "web-2", false);
    await untilCounted(2);
    const { code, stdout } = await why("web-1");
    expect(code).toBe(1);
    expect(stdout).toContain("refuses: no more pods are available than must be (needs 3, 2 available, 0 reserved)");
    expect(stdout).toMatch(/Not available in this cluster:\n.*\n +web-2 +not ready/);
    expect((await plugin("doctor")).stdout).toMatch(
      /FAIL +core +protectors +1 below their minimum: shop\/deployment-web/,
    );
  });

  test("a refusal is an Event at the pod, in its cell, and at the protector, in its core", async () => {
    const cell = estate.cell("cell");
    const { status } = await cell.admin.request("DELETE", `/api/v1/namespaces/${NAMESPACE}/pods/web-1`);
    expect(status).toBe(429);
    for (const [cluster, kind, name] of [
      [cell, "pod", "web-1"],
      [estate.core, "podprotector", NAME],
    ] as const) {
      const described = async (): Promise<string> =>
        (await cluster.kubectl(["describe", kind, name, "--namespace", NAMESPACE])).stdout;
      await cluster.waitFor(`an Event of ${kind} ${name}`, async () =>
        /Warning +DisruptionRefused .* podseidon-webhook +pod shop\/web-1 may not be deleted now/.test(
          await described(),
        ),
      );
    }
  });

  test("suspend changes nothing without --yes, lets pass with it, and resume ends it", async () => {
    const dry = await plugin("suspend", NAME, "-n", NAMESPACE, "--for", "10m");
    expect(dry.stdout).toContain("would be suspended for 10m");
    expect(dry.stdout).toContain("Nothing was changed.");
    expect(dry.code).toBe(1);
    expect(dry.stdout).toContain("Nothing was changed. Repeat the command with --yes");
    expect((await why("web-1")).code).toBe(1);
    const made = await plugin("suspend", NAME, "-n", NAMESPACE, "--for", "10m", "--reason", "a move", "--yes");
    expect(made.stdout).toContain(
      "Warning: while shop/deployment-web is suspended every deletion of its pods is allowed",
    );
    // The webhook learns of it by its watch.
    await estate.core.waitFor("the suspension to be in force", async () => (await why("web-1")).code === 0);
    expect((await why("web-1")).stdout).toContain(`Warning:    PodProtector ${NAMESPACE}/${NAME} is suspended`);
    expect((await plugin("status", NAME, "-n", NAMESPACE)).stdout).toMatch(/Suspended: +until .*: a move/);
    await plugin("resume", NAME, "-n", NAMESPACE);
    await estate.core.waitFor("the end of the suspension", async () => (await why("web-1")).code === 1);
  });
});

describe("when a part is gone for good", () => {
  test("remove-cell forgets it, once the generator has acted", async () => {
    const path = "/api/v1/namespaces/podseidon-system/configmaps/podseidon-cells";
    await estate.core.waitFor(
      "the cell to acknowledge the release register",
      async () => field(await estate.core.admin.get(path), "data", "cell") !== undefined,
    );
    await estate.aggregators.get("cell")?.stop();
    const dry = await plugin("remove-cell", "cell", "-A");
    expect(dry.stdout).toContain("would be rid of cell cell (server dry run)");
    expect(dry.stdout).toContain("no longer counts 2 available pods of cell");
    expect((await plugin("remove-cell", "cell", "-A", "--yes")).code).toBe(0);
    const { stdout } = await plugin("status", NAME, "-n", NAMESPACE);
    expect(stdout).toMatch(/cell +0\/0 +0 +- +- +removed/);
    expect(field(await estate.core.admin.get(path), "data", "cell")).toBeUndefined();
  });

  test("release of a workload that is there says that the workload is annotated", async () => {
    const { code, stdout } = await plugin("release", NAME, "-n", NAMESPACE);
    expect(stdout).toContain("Deployment web is there: it gets the annotation podseidon.kubewharf.io/protect=false");
    expect(code).toBe(1);
  });

  test("release lets the pods of a vanished workload go", async () => {
    const path = `/apis/apps/v1/namespaces/${NAMESPACE}/deployments/web`;
    await generator.stop();
    await estate.core.admin.call("PATCH", path, { metadata: { finalizers: null } });
    await estate.core.admin.call("DELETE", path);
    generator = await Component.start({
      kind: "generator",
      name: "generator-2",
      directory: join(estate.core.directory, "product"),
      args: ["--kubeconfig", estate.core.kubeconfig, "--leader-elect=false"],
    });
    const dry = await plugin("release", NAME, "-n", NAMESPACE);
    expect(dry.stdout).toContain("would be released (server dry run)");
    expect((await plugin("release", NAME, "-n", NAMESPACE, "--yes")).code).toBe(0);
    await estate.core.waitFor("the protector to go", async () => {
      const { stdout } = await plugin("status", "-n", NAMESPACE);
      return stdout.startsWith("There are no protectors");
    });
  });

  test("doctor finds that nobody is asked any more", async () => {
    for (const kind of ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"])
      await estate.cell("cell").admin.call("DELETE", `/apis/admissionregistration.k8s.io/v1/${kind}/podseidon`);
    // The apiserver's own cache of webhook configurations follows a moment later.
    let last: Result | undefined;
    await estate.core.waitFor("the webhook configuration to be out of force", async () => {
      last = await plugin("doctor");
      return /FAIL +cell +webhook +was not asked/.test(last.stdout);
    });
    expect(last?.code).toBe(1);
    expect(last?.stdout).toMatch(/FAIL +cell +webhook configuration +the cluster asks nobody/);
    expect(last?.stdout).toContain("apply the webhook configuration of the cluster's overlay again");
  });
});
