import { expect, test } from "vitest";
import {
  type ApiRequest,
  type ApiResponse,
  type ApiStream,
  type Transport,
  TransportError,
} from "../../../shared/kube/client/transport.ts";
import type { EventNote } from "../../../shared/observe/event-recorder.ts";
import { silentLog } from "../../../shared/observe/log.ts";
import { Metrics } from "../../../shared/observe/metrics.ts";
import { CLUSTER_BUDGETS_ANNOTATION } from "../../../shared/schema/annotations.ts";
import { JSON_TYPE, ScriptedStream } from "../../../test/support/kube/scripted-transport.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { clusterBudgetOf } from "./cluster-budget.ts";
import { planMerge } from "./merge.ts";
import { BudgetMerger } from "./merger.ts";
import { observeMerger } from "./observe.ts";

const KEEP_MS = 600_000;
const SELECTOR = { matchLabels: { app: "db" } };
const metadata = { namespace: "ns", name: "db", uid: "u", resourceVersion: "3" };

function xpdb(minAvailable: number, selector = SELECTOR) {
  return { metadata, spec: { minAvailable, selector } };
}

/** A cluster with these budgets. The core refuses every new one, as a quota or another webhook may, and records. */
function cluster(items: readonly object[], writes: string[] = [], isLate = () => false): Transport {
  const request = async ({ method, path, body = "" }: ApiRequest): Promise<ApiResponse> => {
    const list = JSON.stringify({ metadata: { resourceVersion: "9" }, items });
    if (method === "GET") return { status: 200, headers: {}, body: list };
    const isCreate = method === "POST";
    writes.push(isCreate ? "create" : `${method} ${path.split("/").at(-1)?.split("?")[0]} ${body}`);
    const refusal = { kind: "Status", code: 403, reason: "Forbidden", message: "exceeded quota" };
    // Its watch shows the budget as it was before somebody else has changed it.
    if (isLate()) return { status: 409, headers: {}, body: JSON.stringify({ kind: "Status", reason: "Conflict" }) };
    return { status: isCreate ? 403 : 200, headers: {}, body: JSON.stringify(isCreate ? refusal : {}) };
  };
  const stream = async ({ signal }: ApiRequest): Promise<ApiStream> => ({
    ...{ status: 200, headers: JSON_TYPE, chunks: new ScriptedStream().read(signal), close: () => {} },
  });
  return { request, stream, close: () => {} };
}

/** Stored: what these clusters have asked for. Then they have these budgets, and a leader merges them. */
async function merging(
  before: readonly string[],
  now: Readonly<Record<string, object | undefined>>,
  then: (time: VirtualTime, writes: string[], merger: BudgetMerger, notes: readonly EventNote[]) => Promise<void>,
  allowed: { readonly covers?: () => boolean; readonly mayWrite?: () => boolean } = {},
  isLate?: () => boolean,
): Promise<void> {
  const clusters = before.map((name) => ({ name, isListed: true, budget: clusterBudgetOf(xpdb(2)) }));
  const input = { namespace: "ns", name: "db", stored: [], goneForMs: () => 0, keepMs: KEEP_MS };
  const { labels, annotations, spec } = planMerge({ ...input, clusters }).creates[0]?.wanted ?? {};
  const given = <T extends object>(record: T | undefined) =>
    Object.fromEntries(Object.entries(record ?? {}).filter(([, value]) => value !== null));
  const stored = { metadata: { ...metadata, labels, annotations: given(annotations) }, spec: given(spec) };
  const writes: string[] = [];
  const notes: EventNote[] = [];
  const time = new VirtualTime();
  const events = { record: (note: EventNote) => void notes.push(note) };
  const sinks = { metrics: new Metrics(), log: silentLog, clock: time.clock, events };
  const merger: BudgetMerger = new BudgetMerger({
    transport: cluster([stored], writes, isLate),
    clusters: Object.entries(now).map(([name, budget]) => ({
      name,
      transport: cluster(budget === undefined ? [] : [budget]),
    })),
    ...{ ports: time, keepMs: KEEP_MS, covers: () => true, mayWrite: () => true, ...allowed },
    ...observeMerger(sinks, () => merger),
  });
  const end = new AbortController();
  const ended = merger.lead(end.signal);
  await then(time, writes, merger, notes);
  end.abort();
  await time.advance(1_000);
  await ended;
  expect(merger.trouble).toEqual({ notWritten: 0, unreadable: 0 });
}

test("what the core refuses of one cluster keeps nothing from the others, and takes nothing away", async () => {
  // a asks for more, and b for other pods.
  const now = { a: xpdb(5), b: xpdb(2, { matchLabels: { app: "other" } }) };
  await merging(["a", "b"], now, async (time, writes, merger, notes) => {
    await time.advance(5_000);
    expect(notes[0]).toEqual({
      regarding: { apiVersion: "x-pdb.form3.tech/v1alpha1", kind: "XPodDisruptionBudget", namespace: "ns", name: "db" },
      ...{ type: "Warning", reason: "NotProtected" },
      message: expect.stringMatching(
        /^worker clusters have this budget, and the core does not take it: .*exceeded quota/,
      ),
    });
    expect(merger.trouble).toEqual({ notWritten: 1, unreadable: 0 });
    expect(writes.some((write) => write.includes('\\"a\\":{\\"minAvailable\\":5}'))).toBe(true);
    writes.length = 0;
    await time.advance(2 * KEEP_MS);
    // The part of b would go, and the budget that stands for it now does not exist.
    for (const write of writes.filter((one) => one.startsWith("PATCH"))) expect(write).toContain('\\"b\\"');
  });
});

test("a budget that others have just changed is written a moment later, and nothing is told", async () => {
  let isLate = true;
  const then = async (time: VirtualTime, writes: string[], merger: BudgetMerger, notes: readonly EventNote[]) => {
    await time.advance(1_000);
    expect(notes).toEqual([]);
    expect(writes.length).toBeGreaterThan(0);
    isLate = false;
    writes.length = 0;
    await time.advance(5_000);
    expect(writes.map((write) => write.split(" ")[0])).toEqual(["PATCH"]);
    expect(notes).toEqual([]);
    expect(merger.trouble.notWritten).toBe(0);
  };
  await merging(["a"], { a: xpdb(5) }, then, {}, () => isLate);
});

test("a budget that can't be read any more is there all the same, also for a new leader", async () => {
  // x-pdb's CRD accepts a label value that no pod can have.
  await merging(["a"], { a: xpdb(2, { matchLabels: { app: "not a label value" } }) }, async (time, writes, merger) => {
    await time.advance(2 * KEEP_MS);
    expect(merger.trouble).toEqual({ notWritten: 0, unreadable: 1 });
    expect(writes).toEqual([]);
  });
});

test("a budget that is gone from its cluster counts for its time, and then goes", async () => {
  await merging(["a"], { a: undefined }, async (time, writes) => {
    await time.advance(KEEP_MS - 10_000);
    expect(writes).toEqual([]);
    await time.advance(20_000);
    expect(writes.map((write) => write.split(" ").slice(0, 2))).toEqual([["DELETE", "db"]]);
  });
});

test.each([{ covers: () => false }, { mayWrite: () => false }])(
  "nothing is written in a namespace of others, nor without the lease: %o",
  async (allowed) => {
    const then = async (time: VirtualTime, writes: string[]): Promise<void> => {
      await time.advance(2 * KEEP_MS);
      expect(writes).toEqual([]);
    };
    await merging(["a"], { a: undefined }, then, allowed);
  },
);

/** Whether the core answers this write after it has stored it, or only stores it. */
type Answers = (write: string) => boolean;

/** Two clusters ask for the same, the second one a second later, and the core's watch shows nothing. */
async function unseen(
  answers: Answers,
  then: (time: VirtualTime, writes: string[], stored: Map<string, object>) => Promise<void>,
) {
  const time = new VirtualTime();
  const writes: string[] = [];
  const stored = new Map<string, object>();
  const core: Transport = {
    ...cluster([]),
    request: async ({ method, path, body = "" }) => {
      const answer = (status: number, sent: object) => ({ status, headers: {}, body: JSON.stringify(sent) });
      const [, asked] = /fieldSelector=metadata\.name%3D(.*)/.exec(path) ?? [];
      const found = stored.get(asked ?? "");
      if (method === "GET") return answer(200, { metadata: { resourceVersion: "9" }, items: found ? [found] : [] });
      const sent = JSON.parse(body, (_, value) => value ?? undefined);
      const name = sent.metadata.name ?? path.split("/").at(-1)?.split("?")[0];
      const { clusters } = JSON.parse(sent.metadata.annotations[CLUSTER_BUDGETS_ANNOTATION]);
      const write = `${method} ${name} ${Object.keys(clusters)}`;
      writes.push(write);
      if (method === "POST" && stored.has(name)) return answer(409, { reason: "AlreadyExists" });
      const identity = { name, namespace: "ns", uid: "u1", resourceVersion: `${writes.length}` };
      stored.set(name, { ...sent, metadata: { ...sent.metadata, ...identity } });
      if (!answers(write)) throw new TransportError("reset", true, "the connection was lost");
      return answer(201, stored.get(name) ?? {});
    },
  };
  const isLate = Promise.withResolvers<void>();
  const late = cluster([xpdb(3)]);
  const second: Transport = { ...late, request: (request) => isLate.promise.then(() => late.request(request)) };
  const merger = new BudgetMerger({
    ...{ transport: core, ports: time, keepMs: KEEP_MS, covers: () => true, mayWrite: () => true },
    clusters: [
      { name: "a", transport: cluster([xpdb(2)]) },
      { name: "b", transport: second },
    ],
    ...{ onWatch: () => {}, onEvent: () => {} },
  });
  const end = new AbortController();
  const ended = merger.lead(end.signal);
  await time.advance(1_000);
  isLate.resolve();
  await time.advance(5_000);
  await then(time, writes, stored);
  end.abort();
  await time.advance(1_000);
  await ended;
}

test("a budget that was created is not created again before the watch shows it", async () => {
  await unseen(
    () => true,
    async (time, writes, stored) => {
      expect(writes).toEqual(["POST db a", "PATCH db a,b"]);
      // Somebody may have deleted it at once. What no watch shows does not stay for ever.
      stored.clear();
      await time.advance(20_000);
      expect(writes.slice(2, 3)).toEqual(["POST db a,b"]);
    },
  );
});

test("a budget whose creation got no answer is not created under another name", async () => {
  await unseen(
    (write) => write !== "POST db a",
    async (_, writes) => {
      expect(writes).toEqual(["POST db a", "POST db a", "PATCH db a,b"]);
    },
  );
});

test("a budget that the watch shows very late is not created under another name", async () => {
  await unseen(
    () => true,
    async (time, _, stored) => {
      await time.advance(120_000);
      expect([...stored.keys()]).toEqual(["db"]);
    },
  );
});
