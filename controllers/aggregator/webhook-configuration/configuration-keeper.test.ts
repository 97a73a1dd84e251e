/** The keeper against a cluster that is a table of objects; test/cluster/webhook-configuration.test.ts has a real one. */
import { expect, test } from "vitest";
import { ApiClient } from "../../../shared/kube/client/api-client.ts";
import { ConfigurationTable } from "../../../test/support/aggregator/configuration-table.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { type ConfigurationEvent, ConfigurationKeeper } from "./configuration-keeper.ts";
import { ConfigurationWatches } from "./configuration-watch.ts";
import { KINDS, RESOURCES } from "./desired-configuration.ts";

const CA = "Y2E=";
const VALIDATING = "validatingwebhookconfigurations/podseidon";

/** A cell whose webhook configurations are on record, with a CA, and away. */
function start(counted: Promise<void>) {
  const time = new VirtualTime();
  const cell = new ConfigurationTable();
  const webhooks = [{ name: "one", clientConfig: { url: "https://w:8443/webhook/cell" } }];
  for (const kind of Object.values(KINDS)) {
    const declared = { kind, metadata: { name: "podseidon" }, webhooks };
    cell.record[kind] = JSON.stringify({ declared, bundles: { one: CA } });
  }
  const events: ConfigurationEvent[] = [];
  const keeper = new ConfigurationKeeper({
    watches: new ConfigurationWatches({ transport: cell, ports: time, onEvent: () => {} }),
    api: new ApiClient(cell),
    ports: time,
    name: "podseidon",
    namespace: "podseidon-system",
    timeoutMs: 1_000,
    mayWrite: () => true,
    declared: new Map(),
    onEvent: (event) => events.push(event),
    onRecordFailed: (message) => events.push({ kind: "failed", resource: RESOURCES[0], what: "record", message }),
  });
  const end = new AbortController();
  const running = keeper.run(end.signal, counted);
  const stop = async (): Promise<void> => {
    end.abort();
    await time.advance(10_000);
    await running;
  };
  return { time, cell, events, stop };
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
