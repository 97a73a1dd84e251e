/**
 * A small history of a real installation is replayed in the specification, from the first count to the last record. The
 * same history with one answer, one record or one count changed is refused.
 */
import { beforeAll, describe, expect, test } from "vitest";
import type { TestEnvironment } from "../../scripts/environment/environment.ts";
import { eachAtMost } from "../../shared/runtime/each-at-most.ts";
import { loadSpecification, type Specification } from "../spec/specification.ts";
import { createReadyPods, readyPods, setReady } from "../support/cluster/pods.ts";
import { createProtector, readProtector, waitUntilSettled } from "../support/cluster/protectors.ts";
import { HistoryRecorder } from "../support/history/history-recorder.ts";
import { CELL, CELLS, PODS, SETTLE } from "./recorded-installation.ts";
import { type Flaw, flawsIn } from "./replay/flaws.ts";
import { replayAll } from "./replay/replay-all.ts";

const FULL = process.env.PODSEIDON_TEST_SIZE === "full";
/** Flaws of each kind that are tried; all at full size. */
const EACH = FULL ? Number.POSITIVE_INFINITY : 6;
const WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

type Attempt = readonly [how: "delete" | "evict", cell: (typeof CELLS)[number], name: string];

/** More than may go: `web` has three pods to spare. */
const FIRST: readonly Attempt[] = [
  ["delete", "east", "canary-0"],
  ["evict", "east", "east-0"],
  ["delete", "west", "west-0"],
  ["evict", "west", "west-1"],
  ["delete", "east", "east-1"],
];

/** Whatever becomes of it. */
async function attempt(environment: TestEnvironment, [how, cell, name]: Attempt): Promise<void> {
  const { admin } = environment.cell(cell);
  const body = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name, namespace: "default" } };
  const work =
    how === "evict"
      ? admin.request("POST", `${PODS}/${name}/eviction`, body)
      : admin.request("DELETE", `${PODS}/${name}`);
  await work.catch(() => undefined);
}

async function attemptAll(environment: TestEnvironment, attempts: readonly Attempt[]): Promise<void> {
  await eachAtMost(attempts.length, attempts, async (one) => await attempt(environment, one));
}

/** A webhook of somebody else denies what podseidon has allowed: no apiserver answers at its address. */
async function keepLabelled(environment: TestEnvironment): Promise<void> {
  await environment.cell("east").admin.call("POST", WEBHOOKS, {
    apiVersion: "admissionregistration.k8s.io/v1",
    kind: "ValidatingWebhookConfiguration",
    metadata: { name: "keeper" },
    webhooks: [
      {
        name: "keeper.example.com",
        admissionReviewVersions: ["v1"],
        clientConfig: { url: "https://127.0.0.1:1/" },
        failurePolicy: "Fail",
        objectSelector: { matchLabels: { keep: "true" } },
        rules: [{ apiGroups: [""], apiVersions: ["v1"], operations: ["DELETE"], resources: ["pods"] }],
        sideEffects: "None",
      },
    ],
  });
}

/** The specification begins where every cell is counted: here, with one pod each. */
async function begin(environment: TestEnvironment, recorder: HistoryRecorder): Promise<void> {
  const { core } = environment;
  for (const cell of CELLS) await createPods(environment, cell, "canary", 1);
  await createProtector(core, "default", "web", { minAvailable: 5, selector: { matchLabels: { app: "web" } } });
  const canary = { matchLabels: { app: "web", track: "canary" } };
  await createProtector(core, "default", "canary", { minAvailable: 1, selector: canary });
  await core.waitFor("all cells to be counted", async () => {
    const protectors = await Promise.all(["web", "canary"].map((name) => readProtector(core, "default", name)));
    return protectors.every(
      ({ status }) =>
        status?.cells.length === CELLS.length &&
        status.cells.every(({ aggregation }) => aggregation?.resourceVersion !== undefined),
    );
  });
  await recorder.untilKnown();
}

async function createPods(environment: TestEnvironment, cell: string, prefix: string, count: number): Promise<void> {
  const labels = {
    app: "web",
    ...(prefix.startsWith("canary") ? { track: "canary" } : {}),
    ...(prefix === "kept" ? { keep: "true" } : {}),
  };
  await createReadyPods(environment.cell(cell), { namespace: "default", prefix, count, labels });
}

async function play(environment: TestEnvironment, recorder: HistoryRecorder): Promise<void> {
  const settled = async (): Promise<void> => {
    const left = async (): Promise<number> => await readyPods(environment.cells.values(), "web");
    await waitUntilSettled(environment.core, "default", "web", left);
  };
  await keepLabelled(environment);
  await createPods(environment, "east", "east", 2);
  await createPods(environment, "west", "west", 2);
  await createPods(environment, "east", "canary-next", 1);
  await createPods(environment, "east", "kept", 1);
  await settled();
  const [replica] = environment.webhooks;
  await recorder.during("replica 1", async () => {
    const attempts = attemptAll(environment, FIRST);
    await replica?.component.process.kill("SIGKILL");
    await attempts;
    await replica?.component.process.start();
  });
  await settled();
  // Three of them are gone after this. Then `canary` has quota, and `web` has none.
  await attemptAll(environment, FIRST);
  await settled();
  const aggregator = environment.aggregators.get("east")?.process;
  await recorder.during("aggregator east", async () => {
    await aggregator?.kill("SIGKILL");
    await attempt(environment, ["delete", "east", "canary-next-0"]);
    await aggregator?.start();
  });
  // What is not Ready may be evicted, with a pin.
  await setReady(environment.cell("east"), "default", "canary-next-0", false);
  await attempt(environment, ["evict", "east", "canary-next-0"]);
  await createPods(environment, "east", "late", 3);
  await settled();
  // The first of these is recorded and never happens, which only the settle period tells.
  await attempt(environment, ["delete", "east", "kept-0"]);
  await attemptAll(environment, [
    ["evict", "east", "late-0"],
    ["delete", "east", "late-1"],
    ["delete", "east", "late-2"],
  ]);
  await settled();
}

let specification: Specification;
let lines: readonly string[];

beforeAll(async () => {
  specification = loadSpecification();
  const options = { cells: CELLS, replicas: 2, cell: CELL, settle: SETTLE };
  const { environment, recorder } = await HistoryRecorder.start(options);
  try {
    await begin(environment, recorder);
    await play(environment, recorder);
    lines = await recorder.judged();
  } finally {
    await environment.stop();
  }
});

test("the whole history is a behaviour of the specification", () => {
  const [replayed, ...others] = replayAll(specification, lines);
  expect(others).toEqual([]);
  expect(replayed).toMatchObject({ outcome: "replayed", protectors: ["default/web", "default/canary"] });
  // Not a roll-back, which needs another request in the meantime.
  expect([...(replayed?.kinds ?? [])]).toEqual(
    expect.arrayContaining([
      "account",
      "allow",
      "ask",
      "change",
      "commit",
      "deny",
      "expire",
      "reserve",
      "start",
      "stop",
    ]),
  );
  process.stdout.write(`${replayed?.events} events were replayed, in at most ${replayed?.states} states at a time\n`);
});

describe("the same history with", () => {
  test.each<Flaw["kind"]>([
    "a denial that was an admission",
    "an admission that was a denial",
    "an admission that nobody asked for",
    "a count of another number",
    "records that are not there",
  ])("%s", (kind) => {
    const flaws = flawsIn(lines).filter((flaw) => flaw.kind === kind);
    expect(flaws).not.toEqual([]);
    const accepted = flaws.slice(0, EACH).filter((flaw) => {
      const outcomes = replayAll(specification, flaw.lines).map(({ outcome }) => outcome);
      return !outcomes.includes("refused");
    });
    expect(accepted.map(({ at }) => lines[at])).toEqual([]);
  });
});
