/**
 * The keeper against a cluster that is a table; test/cluster/webhook-configuration/webhook-configuration.test.ts has a
 * real one.
 */
import { expect, test } from "vitest";
import { ApiClient } from "../../../shared/kube/client/api-client.ts";
import { ConfigurationTable } from "../../../test/support/aggregator/configuration-table.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { type ConfigurationEvent, ConfigurationKeeper } from "./configuration-keeper.ts";
import { ConfigurationWatches } from "./configuration-watch.ts";
import { KINDS, RESOURCES } from "./desired-configuration.ts";

const CA = "Y2E=";
const VALIDATING = "validatingwebhookconfigurations/podseidon";

/** A cell whose webhook configurations are on record, with a CA, and away; `prepare` changes that. */
function start(counted: Promise<void>, prepare: (cell: ConfigurationTable) => void = () => {}, failurePolicy = "Fail") {
  const time = new VirtualTime();
  const cell = new ConfigurationTable();
  const rules = [{ operations: ["DELETE"], resources: ["pods"] }];
  const webhooks = [{ name: "one", failurePolicy, clientConfig: { url: "https://w:8443/webhook/cell" }, rules }];
  for (const kind of Object.values(KINDS)) {
    const declared = { kind, metadata: { name: "podseidon" }, webhooks };
    cell.record[kind] = JSON.stringify({ declared, bundles: { one: CA } });
  }
  prepare(cell);
  const events: ConfigurationEvent[] = [];
  const lease = { mayWrite: true };
  const keeper = new ConfigurationKeeper({
    watches: new ConfigurationWatches({ transport: cell, ports: time, onEvent: () => {} }),
    api: new ApiClient(cell),
    ports: time,
    name: "podseidon",
    namespace: "podseidon-system",
    timeoutMs: 1_000,
    mayWrite: () => lease.mayWrite,
    declared: new Map(),
    onEvent: (event) => events.push(event),
    onRecordFailed: (message) => events.push({ kind: "failed", resource: RESOURCES[0], what: "record", message }),
  });
  const term = (waitsFor: Promise<void>): (() => Promise<void>) => {
    const end = new AbortController();
    const running = keeper.run(end.signal, waitsFor);
    return async () => {
      end.abort();
      await time.advance(10_000);
      await running;
    };
  };
  return { time, cell, events, keeper, lease, term, stop: term(counted) };
}

const missing = (resource: string): unknown => ({
  ...{ kind: "restored", resource, why: "missing", uid: expect.any(String) },
  alteration: { changes: [], writer: undefined },
});

test("what was away is restored without its CA, which comes once the pods are counted", async () => {
  const counted = Promise.withResolvers<void>();
  const { time, cell, events, stop } = start(counted.promise);
  await time.advance(10_000);
  expect(cell.bundles(VALIDATING)).toEqual([undefined]);
  expect(events).toEqual(RESOURCES.map(missing));
  counted.resolve();
  await time.advance(1_000);
  expect(cell.bundles(VALIDATING)).toEqual([CA]);
  expect(events).toEqual([...RESOURCES, ...RESOURCES].map(missing));
  await stop();
});

test("where deletions pass without an answer, it is restored with its CA at once", async () => {
  const { time, cell, stop } = start(new Promise(() => {}), undefined, "Ignore");
  await time.advance(1_000);
  expect(cell.bundles(VALIDATING)).toEqual([CA]);
  await stop();
});

test("what is altered after that is told of as altered", async () => {
  const counted = Promise.withResolvers<void>();
  const { time, cell, events, stop } = start(counted.promise);
  await time.advance(10_000);
  counted.resolve();
  await time.advance(10_000);
  events.length = 0;
  cell.alter(VALIDATING, (webhook) => {
    webhook.failurePolicy = "Ignore";
  });
  await time.advance(1_000);
  expect(events).toMatchObject([{ kind: "restored", why: "altered", alteration: { changes: [{}] } }]);
  await stop();
});

test("it waits a minute at most", async () => {
  const { time, cell, stop } = start(new Promise(() => {}));
  await time.advance(50_000);
  expect(cell.bundles(VALIDATING)).toEqual([undefined]);
  await time.advance(20_000);
  expect(cell.bundles(VALIDATING)).toEqual([CA]);
  await stop();
});

test("once the pods are counted, it is restored with its CA", async () => {
  const { time, cell, events, stop } = start(Promise.resolve());
  await time.advance(2_000);
  cell.remove(VALIDATING);
  await time.advance(100);
  expect(cell.bundles(VALIDATING)).toEqual([CA]);
  expect(events).toEqual([...RESOURCES, VALIDATING.split("/")[0] ?? ""].map(missing));
  await stop();
});

test("each term waits until it has counted the pods", async () => {
  const { time, cell, term, stop } = start(Promise.resolve());
  await time.advance(2_000);
  await stop();
  cell.remove(VALIDATING);
  const end = term(new Promise(() => {}));
  await time.advance(50_000);
  expect(cell.bundles(VALIDATING)).toEqual([undefined]);
  await end();
});

test("one with a CA is put back before the pods are counted, too", async () => {
  const { time, cell, events, stop } = start(new Promise(() => {}), (made) => {
    made.put(VALIDATING);
    made.alter(VALIDATING, ({ clientConfig }) => {
      clientConfig.caBundle = CA;
    });
  });
  await time.advance(10_000);
  expect(cell.configurations.get(VALIDATING)?.webhooks).toMatchObject([
    { name: "one", clientConfig: { caBundle: CA } },
  ]);
  expect(events).toContainEqual(expect.objectContaining({ kind: "restored", why: "altered" }));
  await stop();
});

test("refused writes are told of and repeated", async () => {
  const { time, cell, events, stop } = start(Promise.resolve());
  cell.isRefusing = true;
  await time.advance(5_000);
  const failures = events.filter(({ kind }) => kind === "failed");
  expect(failures.length).toBeGreaterThan(3);
  expect(failures[0]).toMatchObject({ resource: RESOURCES[0], what: "restore (missing)" });
  expect(events).toHaveLength(failures.length);
  cell.isRefusing = false;
  await time.advance(2_000);
  expect(cell.bundles(VALIDATING)).toEqual([CA]);
  await stop();
});

test("the record is read until it is known, and nothing is written before", async () => {
  const { time, cell, stop } = start(Promise.resolve(), (made) => {
    made.isRecordAway = true;
  });
  await time.advance(10_000);
  expect(cell.configurations.size).toBe(0);
  cell.isRecordAway = false;
  await time.advance(5_000);
  expect(cell.bundles(VALIDATING)).toEqual([CA]);
  await stop();
});

function recordedCa({ record }: ConfigurationTable): unknown {
  return JSON.parse(record[KINDS[RESOURCES[0]]] ?? "").bundles.one;
}

test("a new CA that could not be recorded is recorded once the cell takes it", async () => {
  const { time, cell, events, keeper, stop } = start(Promise.resolve());
  await time.advance(5_000);
  cell.isRecordAway = true;
  cell.alter(VALIDATING, ({ clientConfig }) => {
    clientConfig.caBundle = "bmV3";
  });
  await time.advance(5_000);
  expect([keeper.isKept, recordedCa(cell)]).toEqual([true, CA]);
  expect(events.at(-1)).toMatchObject({ kind: "failed", resource: RESOURCES[0], what: "record" });
  cell.isRecordAway = false;
  await time.advance(5_000);
  expect(recordedCa(cell)).toBe("bmV3");
  await stop();
});

test("a form that could not be recorded is told once, and recorded later", async () => {
  const { time, cell, events, stop } = start(Promise.resolve());
  await time.advance(5_000);
  const before = cell.record[KINDS[RESOURCES[0]]];
  cell.isRecordAway = true;
  cell.apply(VALIDATING, "Ignore");
  await time.advance(5_000);
  expect(cell.record[KINDS[RESOURCES[0]]]).toBe(before);
  cell.isRecordAway = false;
  await time.advance(5_000);
  expect(JSON.parse(cell.record[KINDS[RESOURCES[0]]] ?? "").declared.webhooks[0].failurePolicy).toBe("Ignore");
  expect(events.filter(({ kind }) => kind === "changed")).toHaveLength(1);
  await stop();
});

test("a record that was denied at first is read once it may be", async () => {
  const { time, cell, events, stop } = start(Promise.resolve(), (made) => {
    made.isRecordDenied = true;
  });
  await time.advance(300_000);
  expect(cell.configurations.size).toBe(0);
  expect(events.filter(({ kind }) => kind === "failed")).toMatchObject([{ what: "record" }]);
  cell.isRecordDenied = false;
  await time.advance(40_000);
  expect(cell.bundles(VALIDATING)).toEqual([CA]);
  await stop();
});

test("a form that was denied to record is recorded once it may be", async () => {
  const { time, cell, events, stop } = start(Promise.resolve());
  await time.advance(5_000);
  cell.isRecordDenied = true;
  cell.apply(VALIDATING, "Ignore");
  await time.advance(300_000);
  cell.isRecordDenied = false;
  await time.advance(40_000);
  expect(JSON.parse(cell.record[KINDS[RESOURCES[0]]] ?? "").declared.webhooks[0].failurePolicy).toBe("Ignore");
  expect(events.filter(({ kind }) => kind === "failed")).toEqual([]);
  await stop();
});

test("what was altered is restored although its new CA can't be recorded", async () => {
  const { time, cell, stop } = start(Promise.resolve());
  await time.advance(5_000);
  cell.isRecordAway = true;
  cell.alter(VALIDATING, (webhook) => {
    webhook.clientConfig.caBundle = "bmV3";
    webhook.failurePolicy = "Ignore";
  });
  await time.advance(1_000);
  expect(cell.configurations.get(VALIDATING)?.webhooks).toMatchObject([{ failurePolicy: "Fail" }]);
  await stop();
});

test("without a record, what is there is adopted, and what is not there is unknown", async () => {
  const { time, cell, events, stop } = start(Promise.resolve(), (made) => {
    made.record = {};
    made.put(VALIDATING);
  });
  await time.advance(5_000);
  expect(events).toContainEqual({ kind: "adopted", resource: RESOURCES[0] });
  expect(events).toContainEqual({ kind: "unknown", resource: RESOURCES[1] });
  expect(Object.keys(cell.record)).toEqual([KINDS[RESOURCES[0]]]);
  events.length = 0;
  cell.remove(VALIDATING);
  await time.advance(1_000);
  expect(events).toContainEqual(missing(RESOURCES[0]));
  await stop();
});

test("nothing is written without the lease", async () => {
  const { time, cell, events, keeper, lease, stop } = start(Promise.resolve());
  await time.advance(2_000);
  lease.mayWrite = false;
  events.length = 0;
  cell.remove(VALIDATING);
  await time.advance(60_000);
  expect(events).toEqual([]);
  expect(cell.configurations.has(VALIDATING)).toBe(false);
  expect(keeper.isKept).toBe(false);
  await stop();
});

test("it says whether both webhook configurations are as declared, and which namespaces are asked about", async () => {
  const { time, cell, keeper, lease, stop } = start(Promise.resolve());
  expect([keeper.isKept, keeper.isAsked({})]).toEqual([undefined, false]);
  await time.advance(5_000);
  expect([keeper.isKept, keeper.isAsked({})]).toEqual([true, true]);
  lease.mayWrite = false;
  cell.alter(VALIDATING, (webhook) => {
    webhook.failurePolicy = "Ignore";
  });
  await time.advance(100);
  expect([keeper.isKept, keeper.isAsked({})]).toEqual([false, false]);
  cell.remove(VALIDATING);
  await time.advance(100);
  expect([keeper.isKept, keeper.isAsked({})]).toEqual([false, false]);
  await stop();
  expect([keeper.isKept, keeper.isAsked({})]).toEqual([undefined, false]);
});
