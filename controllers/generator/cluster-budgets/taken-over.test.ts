/** A worker cluster whose kube-apiserver is taken over, beside one that is not (docs/security.md). */
import { describe, expect, test } from "vitest";
import type { ApiRequest, ApiStream, Transport } from "../../../shared/kube/client/transport.ts";
import type { ReflectorEvent } from "../../../shared/kube/informer/reflector-options.ts";
import { JSON_TYPE, ScriptedStream } from "../../../test/support/kube/scripted-transport.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { BudgetMerger, MAX_BUDGETS, MAX_MERGED, type MergeEvent } from "./merger.ts";

const PAGE = 250;

function xpdb(name: string, spec: object = { minAvailable: 1, selector: { matchLabels: { app: "db" } } }) {
  return { metadata: { namespace: "ns", name, uid: `uid ${name}`, resourceVersion: "9" }, spec };
}

/** A server that answers a list from `items` on, and each watch with the next of `streams`. */
function server(
  pageAt: (page: number) => { readonly items: readonly object[]; readonly goesOn: boolean },
  streams: readonly ScriptedStream[] = [],
): Transport & { readonly pages: number[] } {
  const pages: number[] = [];
  const left = [...streams];
  return {
    pages,
    async request({ path }) {
      const page = Number(new URLSearchParams(path.split("?")[1]).get("continue") ?? 0);
      pages.push(page);
      const { items, goesOn } = pageAt(page);
      const metadata = { resourceVersion: "9", ...(goesOn ? { continue: String(page + 1) } : {}) };
      return { status: 200, headers: {}, body: JSON.stringify({ metadata, items }) };
    },
    async stream({ signal }: ApiRequest): Promise<ApiStream> {
      const stream = left.shift() ?? new ScriptedStream();
      return { status: 200, headers: JSON_TYPE, chunks: stream.read(signal), close: () => {} };
    },
    close: () => {},
  };
}

/** The core, which stores what is created under a new name, once it answers. */
function coreCluster(created: string[], answers: Promise<void>): Transport {
  const stream = new ScriptedStream();
  const taken = new Set<string>();
  let version = 10;
  return {
    async request({ method, body = "" }) {
      if (method !== "POST")
        return { status: 200, headers: {}, body: JSON.stringify({ metadata: { resourceVersion: "9" }, items: [] }) };
      await answers;
      const object: { metadata: { name: string } } = JSON.parse(body);
      if (taken.has(object.metadata.name)) {
        const status = { kind: "Status", code: 409, reason: "AlreadyExists", message: "already exists" };
        return { status: 409, headers: {}, body: JSON.stringify(status) };
      }
      created.push(object.metadata.name);
      taken.add(object.metadata.name);
      const resourceVersion = String(++version);
      const metadata = { ...object.metadata, uid: `core ${resourceVersion}`, resourceVersion };
      stream.event("ADDED", { ...object, metadata });
      return { status: 201, headers: {}, body: JSON.stringify({ ...object, metadata }) };
    },
    stream: async ({ signal }) => ({ status: 200, headers: JSON_TYPE, chunks: stream.read(signal), close: () => {} }),
    close: () => {},
  };
}

function merging(clusters: Readonly<Record<string, Transport>>, answers = Promise.resolve()) {
  const time = new VirtualTime();
  const created: string[] = [];
  const watched: string[] = [];
  const events: MergeEvent[] = [];
  const merger = new BudgetMerger({
    transport: coreCluster(created, answers),
    clusters: Object.entries(clusters).map(([name, transport]) => ({ name, transport })),
    ...{ ports: time, keepMs: 600_000, covers: () => true, mayWrite: () => true },
    onEvent: (event) => void events.push(event),
    onWatch: (resource, event: ReflectorEvent) => {
      if (event.kind === "failed") watched.push(`${resource}: ${event.tag}`);
    },
  });
  const end = new AbortController();
  const ended = merger.lead(end.signal);
  const stop = async (): Promise<void> => {
    end.abort();
    await time.advance(1_000);
    await ended;
  };
  return { time, merger, created, watched, events, stop };
}

const honest = (name: string) => server(() => ({ items: [xpdb(name)], goesOn: false }));

describe("a worker cluster that is taken over costs its own budgets alone:", () => {
  const many = (page: number) => Array.from({ length: PAGE }, (_, index) => xpdb(`n${page * PAGE + index}`));
  // The bound of the script keeps a test without the mend from going on for ever.
  const END = (4 * MAX_BUDGETS) / PAGE;

  test.each([
    ["budgets without end", (page: number) => ({ items: many(page), goesOn: page < END })],
    ["pages without end, and nothing in them", (page: number) => ({ items: [], goesOn: page < 2 * MAX_BUDGETS })],
  ])("a list of %s is not read on", async (_, pageAt) => {
    const liar = server(pageAt);
    const it = merging({ liar, honest: honest("db") });
    await it.time.advance(100);
    expect(it.merger.sizes()).toEqual(
      new Map([
        ["liar", undefined],
        ["honest", 1],
      ]),
    );
    expect(it.created).toEqual(["db"]);
    expect(it.watched[0]).toBe("budgets of liar: oversized");
    expect(Math.max(...liar.pages)).toBeLessThanOrEqual(MAX_BUDGETS + 1);
    await it.stop();
  });

  test("a list of as many budgets as are kept is read", async () => {
    const cell = server((page) => ({ items: many(page), goesOn: page < MAX_BUDGETS / PAGE - 1 }));
    const it = merging({ cell });
    await it.time.advance(1);
    expect(it.merger.sizes().get("cell")).toBe(MAX_BUDGETS);
    expect(it.watched).toEqual([]);
    await it.stop();
  });

  test("a stream of budgets without end is not read on, and what is known stays in force", async () => {
    const stream = new ScriptedStream();
    let isOver = false;
    const liar = server((page) => ({ items: isOver ? many(page) : [xpdb("first")], goesOn: isOver }), [stream]);
    const it = merging({ liar, honest: honest("db") });
    await it.time.advance(100);
    isOver = true;
    for (let index = 0; index < 2 * MAX_BUDGETS; index++) stream.event("ADDED", xpdb(`s${index}`));
    await it.time.advance(20_000);
    expect(it.watched).toContain("budgets of liar: oversized");
    expect(it.merger.sizes().get("liar")).toBeLessThanOrEqual(MAX_BUDGETS + 1);
    expect(it.created).toEqual(expect.arrayContaining(["db", "first"]));
    await it.stop();
  });

  const LONG = "x".repeat(1_000_000);
  test.each<[string, object]>([
    ["name", { ...xpdb("a"), metadata: { ...xpdb("a").metadata, name: LONG } }],
    ["UID", { ...xpdb("a"), metadata: { ...xpdb("a").metadata, uid: LONG } }],
    ["version", { ...xpdb("a"), metadata: { ...xpdb("a").metadata, resourceVersion: LONG } }],
    ["name, and nothing readable,", { metadata: { ...xpdb("a").metadata, name: LONG }, spec: 1 }],
  ])("a budget with a %s of a megabyte is not kept", async (_, item) => {
    const it = merging({ liar: server(() => ({ items: [item], goesOn: false })), honest: honest("db") });
    await it.time.advance(100);
    expect([...it.merger.sizes().values()]).toEqual([0, 1]);
    expect(it.created).toEqual(["db"]);
    await it.stop();
  });

  test("a budget with a selector of sixty kilobytes can't be read", async () => {
    const values = Array.from({ length: 1_000 }, (_, index) => `v${index}`.padEnd(63, "x"));
    const matchExpressions = [0, 1, 2, 3].map((part) => ({
      ...{ key: `k${part}`, operator: "In", values: values.slice(250 * part, 250 * (part + 1)) },
    }));
    const item = xpdb("a", { minAvailable: 1, selector: { matchExpressions } });
    const it = merging({ liar: server(() => ({ items: [item], goesOn: false })), honest: honest("db") });
    await it.time.advance(100);
    expect(it.merger.trouble.unreadable).toBe(1);
    expect(it.created).toEqual(["db"]);
    await it.stop();
  });

  /** A cluster that has one budget after the other, each at once, and what becomes of that of another cluster. */
  async function afterChanges(changes: number, atOnce: number, budgetOf: (index: number) => object) {
    const [stream, other] = [new ScriptedStream(), new ScriptedStream()];
    const empty = (streams: readonly ScriptedStream[]) => server(() => ({ items: [], goesOn: false }), streams);
    const it = merging({ liar: empty([stream]), honest: empty([other]) });
    await it.time.advance(100);
    for (let done = 0; done < changes; done += atOnce) {
      const batch = Array.from({ length: atOnce }, (_, index) => budgetOf(done + index));
      for (const budget of batch) stream.event("ADDED", budget);
      await it.time.settle();
      for (const budget of batch) stream.event("DELETED", budget);
    }
    const before = it.created.length;
    other.event("ADDED", xpdb("db"));
    await it.time.advance(20_000);
    expect(it.created.slice(before)).toEqual([expect.stringMatching(/^db/)]);
    await it.stop();
    const last = it.events.findLast((event) => event.kind === "mergeFailed");
    return { created: before, message: last?.error.message };
  }

  test("budgets that are gone again while the core hangs leave room for those of another cluster", async () => {
    const [stream, other] = [new ScriptedStream(), new ScriptedStream()];
    const empty = (streams: readonly ScriptedStream[]) => server(() => ({ items: [], goesOn: false }), streams);
    const core = Promise.withResolvers<void>();
    const it = merging({ liar: empty([stream]), honest: empty([other]) }, core.promise);
    await it.time.advance(100);
    // More than both clusters may have in the queue.
    for (let done = 0; done <= 2 * (MAX_BUDGETS + MAX_MERGED); done += 4_000) {
      const batch = Array.from({ length: 4_000 }, (_, index) => xpdb(`n${done + index}`));
      for (const budget of batch) stream.event("ADDED", budget);
      for (const budget of batch) stream.event("DELETED", budget);
      await it.time.settle();
    }
    other.event("ADDED", xpdb("db"));
    await it.time.settle();
    core.resolve();
    await it.time.advance(1_000);
    expect(it.created.filter((name) => !name.startsWith("n"))).toEqual(["db"]);
    await it.stop();
  });

  test("budgets that are deleted as soon as they are merged fill no core", async () => {
    expect(await afterChanges(MAX_MERGED + 1_000, 100, (index) => xpdb(`n${index}`))).toEqual({
      created: MAX_MERGED,
      message: "liar asked for too many budgets lately",
    });
  });

  test("a budget that names other pods each time fills no core, and that of another cluster is merged", async () => {
    const selecting = (index: number) => ({ minAvailable: 1, selector: { matchLabels: { app: `a${index}` } } });
    expect(await afterChanges(100, 1, (index) => xpdb("db", selecting(index)))).toEqual({
      created: 10,
      message: "liar asked for too many budgets lately",
    });
  });
});
