/**
 * The counted readiness gate with the real Deployment controller: the denials of a rollout without the gate and with
 * it.
 */
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { deploy, roll } from "../../../scripts/bench/rollout.ts";
import { conditionStatus, field, items } from "../../../scripts/control-plane/api-client.ts";
import { AvailabilityJudge } from "../../../scripts/demo/availability.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { COUNTED_CONDITION, COUNTED_GATE } from "../../../shared/schema/annotations.ts";
import { ask, isUndecided, messageOf } from "../../support/cluster/ask.ts";
import { AUDITED, readDeletions } from "../../support/cluster/deletions.ts";
import { wakingControllers } from "../../support/cluster/denied-controllers.ts";
import { shellCommand } from "../../support/cluster/documented.ts";
import { createReadyPods } from "../../support/cluster/pods.ts";
import { createProtector, readProtector, waitUntilSettled } from "../../support/cluster/protectors.ts";

const FULL = process.env.PODSEIDON_TEST_SIZE === "full";
const REPLICAS = FULL ? 100 : 20;
const ROLLS = FULL ? 10 : 1;
/** The value of maxSurge and of maxUnavailable. */
const QUARTER = REPLICAS / 4;
const PODS = "/api/v1/namespaces/default/pods";
const SPEC = { containers: [{ name: "app", image: "app:1" }] };

let environment: TestEnvironment;

beforeAll(async () => {
  environment = await TestEnvironment.start({
    cells: ["cell"],
    single: true,
    // One replica, so that its cache is the only one.
    replicas: 1,
    settle: "40s",
    cell: { nodes: 2, ...AUDITED },
    // Counts are delayed as from a distant core, so that a rollout meets the gap that the gate closes.
    aggregatorArgs: ["--counted-gate-bound", "5m", "--coalesce-period", "300ms"],
  });
  await deploy(environment, "web", REPLICAS);
  await waitUntilSettled(environment.core, "default", "web", REPLICAS);
});

afterAll(() => environment?.stop());

function isGated(pod: unknown): boolean {
  const gates = field(pod, "spec", "readinessGates");
  return Array.isArray(gates) && gates.some((gate) => field(gate, "conditionType") === COUNTED_CONDITION);
}

async function pods(app: string): Promise<readonly unknown[]> {
  return items(await environment.core.admin.get(`${PODS}?labelSelector=app%3D${app}`));
}

/** Returns how many pods have ready containers. */
async function running(image: string): Promise<number> {
  const found = await pods("web");
  const isNew = (pod: unknown): boolean => JSON.stringify(field(pod, "spec", "containers")).includes(`"${image}"`);
  return found.filter((pod) => isNew(pod) && conditionStatus(pod, "ContainersReady") === "True").length;
}

/** Stops the aggregator until the condition holds, as a slow machine does at times. */
async function whileNobodyCounts(what: string, condition: () => Promise<boolean>): Promise<void> {
  const aggregator = environment.aggregators.get("cell");
  aggregator?.process.freeze();
  try {
    await environment.core.waitFor(what, condition);
  } finally {
    aggregator?.process.thaw();
  }
}

/** Deletions that were denied, by the audit log: not those that could not be decided yet. */
function denials(): number {
  return readDeletions(environment.core).filter(({ code, message }) => code === 429 && !isUndecided(code, message))
    .length;
}

/** Runs one rollout, and `meanwhile` beside it. Resolves to the number of denied deletions. */
async function rolled(image: string, meanwhile: () => Promise<void> = async () => {}): Promise<number> {
  const availability = await AvailabilityJudge.watch([environment.core], "default", "app=web");
  const before = denials();
  try {
    const rollout = roll(environment, "web", REPLICAS, image, wakingControllers(environment.core));
    const [{ tookMs }] = await Promise.all([rollout, meanwhile()]);
    await availability.catchUp();
    const refused = denials() - before;
    process.stdout.write(
      `rollout ${image} of ${REPLICAS}: ${Math.round(tookMs)} ms, refused ${refused}, lowest ${availability.lowest}\n`,
    );
    expect(availability.lowest).toBeGreaterThanOrEqual(REPLICAS - QUARTER);
    await waitUntilSettled(environment.core, "default", "web", REPLICAS);
    return denials() - before;
  } finally {
    await availability.stop();
  }
}

/** Runs several rollouts, by the size of the test, without delays. */
async function rolls(image: string): Promise<number[]> {
  const refused: number[] = [];
  for (let count = 1; count <= ROLLS; count++) refused.push(await rolled(`${image}:${count}`));
  return refused;
}

async function createPod(name: string, labels: Readonly<Record<string, string>>): Promise<void> {
  await environment.core.admin.call("POST", PODS, {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, labels },
    spec: SPEC,
  });
}

/** A pod as it would be created now. */
async function sample(): Promise<unknown> {
  const pod = { apiVersion: "v1", kind: "Pod", metadata: { name: "sample", labels: { app: "web" } }, spec: SPEC };
  return await environment.core.admin.call("POST", `${PODS}?dryRun=All`, pod);
}

async function statusOf(name: string, type: string): Promise<string | undefined> {
  return conditionStatus(await environment.core.admin.get(`${PODS}/${name}`), type);
}

async function setCondition(name: string, type: string): Promise<void> {
  const body = { status: { conditions: [{ type, status: "True" }] } };
  await environment.core.admin.call("PATCH", `${PODS}/${name}/status`, body, {
    contentType: "application/strategic-merge-patch+json",
  });
}

/** Creates a pod that no node has, and reports what its kubelet would: the containers are ready, the gates are not. */
async function createGatedPod(name: string, labels: Readonly<Record<string, string>>): Promise<void> {
  const spec = { ...SPEC, schedulerName: "none", readinessGates: [{ conditionType: COUNTED_CONDITION }] };
  await environment.core.admin.call("POST", PODS, { apiVersion: "v1", kind: "Pod", metadata: { name, labels }, spec });
  await setCondition(name, "ContainersReady");
  await writeReady(name, { status: "False", reason: "ReadinessGatesNotReady" });
}

async function writeReady(name: string, ready: { status: string; reason: string | null }): Promise<void> {
  const body = { status: { phase: "Running", conditions: [{ type: "Ready", ...ready }] } };
  await environment.core.admin.call("PATCH", `${PODS}/${name}/status`, body, {
    contentType: "application/strategic-merge-patch+json",
  });
}

describe("rolling updates", () => {
  it("without the gate are denied old pods whose replacements are not counted yet", async () => {
    const held = await rolled("held:1", async () => {
      const before = denials();
      await whileNobodyCounts("a denial", async () => denials() > before);
    });
    expect(held).toBeGreaterThan(0);
    const refused = await rolls("plain");
    process.stdout.write(`without the gate: ${refused.join(", ")} refusals\n`);
    expect((await pods("web")).some(isGated)).toBe(false);
  });

  it("with the gate are never denied", async () => {
    await environment.registerGate("cell");
    await environment.core.kubectl(["annotate", "podprotector/web", `${COUNTED_GATE}=enabled`]);
    await environment.core.waitFor("the webhooks to know of the annotation", async () => {
      const answers = await Promise.all(Array.from({ length: 8 }, sample));
      return answers.every(isGated);
    });
    // The pods that may be deleted at once, and those that may come in addition; more only when these are Ready.
    const most = 2 * QUARTER;
    const held = await rolled("held:2", () =>
      whileNobodyCounts(`${most} new pods to run`, async () => (await running("held:2")) === most),
    );
    const refused = [held, ...(await rolls("gated"))];
    process.stdout.write(`with the gate: ${refused.join(", ")} refusals\n`);
    expect(refused).toEqual(refused.map(() => 0));
    expect((await pods("web")).every(isGated)).toBe(true);
    const aggregator = environment.aggregators.get("cell");
    const opened = await aggregator?.metric("podseidon_aggregator_gates_opened_total", { reason: "Counted" });
    expect(opened).toBeGreaterThanOrEqual(REPLICAS);
  });
});

describe("custom conditions", () => {
  it("count as the protector says: a readiness gate as part of Ready, another condition beside it", async () => {
    const labels = { app: "own" };
    const spec = { minAvailable: 1, selector: { matchLabels: labels }, availabilityConditions: ["example.com/warm"] };
    await createProtector(environment.core, "default", "own", spec);
    const gated = { ...SPEC, readinessGates: [{ conditionType: "example.com/in-rotation" }] };
    for (const name of ["own-0", "own-1"]) {
      await environment.core.admin.call("POST", PODS, {
        apiVersion: "v1",
        kind: "Pod",
        metadata: { name, labels },
        spec: gated,
      });
      await environment.core.waitFor(
        `${name} to run`,
        async () => (await statusOf(name, "ContainersReady")) === "True",
      );
      expect(await statusOf(name, "Ready")).not.toBe("True");
      await setCondition(name, "example.com/in-rotation");
      await environment.core.waitFor(`${name} to be Ready`, async () => (await statusOf(name, "Ready")) === "True");
    }
    await environment.core.waitFor("both to be counted as Ready, none as available", async () => {
      const { status } = await readProtector(environment.core, "default", "own");
      const { readyReplicas, availableReplicas } = status?.cells[0]?.aggregation ?? {};
      return readyReplicas === 2 && availableReplicas === 0;
    });
    await setCondition("own-0", "example.com/warm");
    await waitUntilSettled(environment.core, "default", "own", 1);
    const expectStatus = async (name: string, status: number): Promise<void> => {
      const answer = await ask(environment.core, "DELETE", `${PODS}/${name}?dryRun=All`);
      expect(answer.status, messageOf(answer)).toBe(status);
    };
    await expectStatus("own-0", 429);
    await expectStatus("own-1", 200);
    await setCondition("own-1", "example.com/warm");
    await waitUntilSettled(environment.core, "default", "own", 2);
    await expectStatus("own-0", 200);
  });
});

describe("a pod that is counted and not Ready yet", () => {
  it("gives no quota before its kubelet has set Ready", async () => {
    const labels = { app: "slow" };
    await createProtector(environment.core, "default", "slow", { minAvailable: 2, selector: { matchLabels: labels } });
    const [ready] = await createReadyPods(environment.core, { namespace: "default", prefix: "slow", count: 2, labels });
    await createGatedPod("slow-new", labels);
    await waitUntilSettled(environment.core, "default", "slow", 3);
    await environment.core.waitFor(
      "its gate to open",
      async () => (await statusOf("slow-new", COUNTED_CONDITION)) === "True",
    );
    const remove = () => ask(environment.core, "DELETE", `${PODS}/${ready}?dryRun=All`);
    const denied = await remove();
    expect({ status: denied.status, cause: field(denied.body, "details", "causes", 0, "message") }).toEqual({
      status: 429,
      cause: expect.stringContaining("1 of them counted and not Ready yet"),
    });
    await writeReady("slow-new", { status: "True", reason: null });
    await environment.core.waitFor("the quota of a Ready pod", async () => (await remove()).status === 200);
  });
});

describe("a node that dies", () => {
  it("takes a gated pod out of the count when node-lifecycle sets Ready to False", async () => {
    const labels = { app: "dead" };
    await createProtector(environment.core, "default", "dead", { minAvailable: 3, selector: { matchLabels: labels } });
    const names = ["dead-0", "dead-1", "dead-2", "dead-3"];
    for (const name of names) await createGatedPod(name, labels);
    await waitUntilSettled(environment.core, "default", "dead", 4);
    for (const name of names) await writeReady(name, { status: "True", reason: null });
    // pkg/controller/util/node MarkPodsNotReady: the whole status, with another status of Ready, and its old reason.
    const pod = await environment.core.admin.get(`${PODS}/dead-0`);
    for (const condition of Object(pod).status.conditions) if (condition.type === "Ready") condition.status = "False";
    await environment.core.admin.call("PUT", `${PODS}/dead-0/status`, pod);
    expect(await statusOf("dead-0", "ContainersReady")).toBe("True");
    const remove = async (name: string): Promise<number> =>
      (await ask(environment.core, "DELETE", `${PODS}/${name}?dryRun=All`)).status;
    const counted = environment.core.waitFor("the count without the pod", async () => {
      const { status } = await readProtector(environment.core, "default", "dead");
      return status?.cells[0]?.aggregation?.availableReplicas === 3;
    });
    await counted.catch((error: unknown) => process.stdout.write(`${String(error)}\n`));
    // A dry run is allowed by the count that the webhook knows, which may be the one before.
    const verdicts = async () => ({ healthy: await remove("dead-1"), dead: await remove("dead-0") });
    await expect.poll(verdicts).toEqual({ healthy: 429, dead: 200 });
  });
});

describe("the gate", () => {
  it("gets its condition again when that is lost", async () => {
    const [pod] = await pods("web");
    const name = String(field(pod, "metadata", "name"));
    const conditions = [{ type: COUNTED_CONDITION, $patch: "delete" }];
    const patch = JSON.stringify({ status: { conditions } });
    await environment.core.kubectl([
      "patch",
      `pod/${name}`,
      "--subresource=status",
      "--type=strategic",
      "--patch",
      patch,
    ]);
    await environment.core.waitFor(
      "the condition to be back",
      async () => (await statusOf(name, COUNTED_CONDITION)) === "True",
    );
  });

  it("opens at once for a pod that no protector counts", async () => {
    const spec = { ...SPEC, readinessGates: [{ conditionType: COUNTED_CONDITION }] };
    const metadata = { name: "stray", labels: { app: "stray" } };
    await environment.core.admin.call("POST", PODS, { apiVersion: "v1", kind: "Pod", metadata, spec });
    await environment.core.waitFor(
      "the stray pod to be Ready",
      async () => (await statusOf("stray", "Ready")) === "True",
    );
  });

  it("waits for a stopped aggregator, opens by one command, and is not added after another command", async () => {
    const aggregator = environment.aggregators.get("cell");
    await aggregator?.process.kill("SIGKILL");
    await createPod("waiting", { app: "web" });
    expect(isGated(await environment.core.admin.get(`${PODS}/waiting`))).toBe(true);
    await environment.core.waitFor(
      "its containers to be ready",
      async () => (await statusOf("waiting", "ContainersReady")) === "True",
    );
    expect(await statusOf("waiting", "Ready")).toBe("False");
    const page = readFileSync(new URL("../../../docs/counted-gate.md", import.meta.url), "utf8");
    await shellCommand(environment.core, page, "open the gates");
    await environment.core.waitFor("the pod to be Ready", async () => (await statusOf("waiting", "Ready")) === "True");
    await shellCommand(environment.core, page, "turn the gate off");
    await environment.core.waitFor("the apiserver to know", async () => !isGated(await sample()));
    await createPod("plain", { app: "web" });
    expect(isGated(await environment.core.admin.get(`${PODS}/plain`))).toBe(false);
    await aggregator?.process.start();
  });
});
