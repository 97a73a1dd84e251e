/** The CA injector against a cluster that is a table of objects. */
import { expect, test } from "vitest";
import { PUBLISHED_CONFIG_MAP } from "../../../shared/certificates/ca-bundle.ts";
import { createCertificateAuthority } from "../../../shared/certificates/x509.ts";
import { ApiClient } from "../../../shared/kube/client/api-client.ts";
import { ConfigurationTable } from "../../../test/support/aggregator/configuration-table.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { CaInjector, type CaInjectorEvent } from "./ca-injector.ts";
import { ConfigurationWatches } from "./configuration-watch.ts";
import { encodeCaBundle } from "./desired-configuration.ts";

const VALID = { notBeforeMs: 0, notAfterMs: Date.UTC(2100, 0, 1) };
const PEM = `${(await createCertificateAuthority({ ...VALID, commonName: "test" })).certificatePem.trim()}\n`;
const UNREADABLE = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
const CELL = "cell";
const VALIDATING = "validatingwebhookconfigurations/podseidon";
const MUTATING = "mutatingwebhookconfigurations/podseidon";
const GATE = "mutatingwebhookconfigurations/podseidon-gate";

function start(cellID = CELL) {
  const time = new VirtualTime();
  const cell = new ConfigurationTable(PEM);
  for (const path of [VALIDATING, MUTATING]) cell.put(path);
  const events: CaInjectorEvent[] = [];
  const lease = { mayWrite: true };
  const injector = new CaInjector({
    cellID,
    watches: new ConfigurationWatches({ transport: cell, ports: time, onEvent: () => {} }),
    api: new ApiClient(cell),
    publisher: new ApiClient(cell),
    namespace: "podseidon-system",
    name: "podseidon",
    ports: time,
    intervalMs: 1_000,
    timeoutMs: 1_000,
    mayWrite: () => lease.mayWrite,
    onEvent: (event) => events.push(event),
  });
  /** One term; returns what ends it. */
  const lead = (counted?: Promise<void>): (() => Promise<void>) => {
    const end = new AbortController();
    const running = injector.run(end.signal, counted);
    return async () => {
      end.abort();
      await time.advance(10_000);
      await running;
    };
  };
  return { time, cell, events, injector, lease, lead };
}

test("both webhook configurations get the published authority, and the counted gate's once it appears", async () => {
  const { time, cell, events, injector, lead } = start();
  const end = lead();
  const trusted = [encodeCaBundle(PEM), encodeCaBundle(PEM)];

  await time.advance(2_000);
  expect(cell.bundles(VALIDATING)).toEqual(trusted);
  expect(cell.bundles(MUTATING)).toEqual(trusted);
  expect(cell.configurations.get(VALIDATING)?.webhooks[0]?.clientConfig.service).toMatchObject({
    path: "/webhook/cell",
  });
  expect(injector.isTrusting).toBe(true);
  expect(cell.acknowledgements).toEqual([{ data: { [CELL]: expect.any(String) } }]);

  cell.put(GATE);
  await time.advance(2_000);
  expect(cell.bundles(GATE)).toEqual(trusted);
  expect(injector.isTrusting).toBe(true);
  expect(events.map(({ kind }) => kind)).toEqual(["injected", "injected", "acknowledged", "injected"]);

  await end();
});

test("none without an authority gets one before the pods are counted", async () => {
  const { time, cell, lead } = start();
  for (const { clientConfig } of cell.configurations.get(MUTATING)?.webhooks ?? []) clientConfig.caBundle = "b2xk";
  const counted = Promise.withResolvers<void>();
  const end = lead(counted.promise);
  await time.advance(30_000);
  expect(cell.bundles(VALIDATING)).toEqual([undefined, undefined]);
  expect(cell.bundles(MUTATING)).toEqual([encodeCaBundle(PEM), encodeCaBundle(PEM)]);
  expect(cell.acknowledgements).toEqual([]);
  counted.resolve();
  await time.advance(10);
  expect(cell.bundles(VALIDATING)).toEqual([encodeCaBundle(PEM), encodeCaBundle(PEM)]);
  await end();
});

test("where deletions pass without an answer, nothing waits", async () => {
  const { time, cell, lead } = start();
  cell.put(GATE);
  const fails = cell.configurations.get(VALIDATING)?.webhooks ?? [];
  for (const webhook of [...cell.configurations.values()].flatMap(({ webhooks }) => webhooks))
    webhook.failurePolicy = fails[0] === webhook ? "Fail" : "Ignore";
  const end = lead(new Promise(() => {}));
  await time.advance(2_000);
  const trusted = [encodeCaBundle(PEM), encodeCaBundle(PEM)];
  expect([VALIDATING, MUTATING, GATE].map((path) => cell.bundles(path))).toEqual([
    ...[[undefined, undefined], trusted, trusted],
  ]);
  await end();
});

test.each([
  ["a~b", ["a_b", "a_.b"]],
  ["a_b", ["a_b", "a__b"]],
  ["a__b", ["a____b"]],
])("cell %s acknowledges for no other cell, and takes back what it wrote for two before", async (id, keys) => {
  const { time, cell, lead } = start(id);
  const end = lead();
  await time.advance(2_000);
  const data = Object.fromEntries(keys.map((key) => [key, keys.at(-1) === key ? expect.any(String) : null]));
  expect(cell.acknowledgements).toEqual([{ data }]);
  await end();
});

test("a cell without its webhook configuration acknowledges nothing", async () => {
  const { time, cell, injector, lead } = start();
  cell.remove(VALIDATING);
  const end = lead();
  await time.advance(5_000);
  expect(injector.isTrusting).toBe(false);
  expect(cell.acknowledgements).toEqual([]);
  cell.put(VALIDATING);
  await time.advance(5_000);
  expect(injector.isTrusting).toBe(true);
  expect(cell.acknowledgements).toHaveLength(1);
  await end();
});

test("nothing is written without the lease, and an acknowledgement is repeated every ten minutes", async () => {
  const { time, cell, lease, lead } = start();
  lease.mayWrite = false;
  const end = lead();
  await time.advance(5_000);
  expect(cell.bundles(VALIDATING)).toEqual([undefined, undefined]);
  lease.mayWrite = true;
  await time.advance(2_000);
  expect(cell.acknowledgements).toHaveLength(1);
  await time.advance(590_000);
  expect(cell.acknowledgements).toHaveLength(1);
  await time.advance(20_000);
  expect(cell.acknowledgements).toHaveLength(2);
  lease.mayWrite = false;
  await time.advance(700_000);
  expect(cell.acknowledgements).toHaveLength(2);
  await end();
});

test("a refused write is told of", async () => {
  const { time, cell, events, lead } = start();
  cell.isRefusing = true;
  const end = lead();
  await time.advance(1_500);
  expect(events).toContainEqual(expect.objectContaining({ kind: "failed", what: "validatingwebhookconfigurations" }));
  expect(events.some(({ kind }) => kind === "injected")).toBe(false);
  await end();
});

test("it waits a minute at most, also in the next term", async () => {
  const { time, cell, lead } = start();
  for (const _ of [1, 2]) {
    const end = lead(new Promise(() => {}));
    await time.advance(59_000);
    expect(cell.bundles(VALIDATING)).toEqual([undefined, undefined]);
    await time.advance(2_000);
    expect(cell.bundles(VALIDATING)).toEqual([encodeCaBundle(PEM), encodeCaBundle(PEM)]);
    await end();
    cell.put(VALIDATING);
  }
});

test.each([
  ["emptied", ""],
  ["filled with garbage", "garbage"],
  ["a certificate that can't be read", UNREADABLE],
  ["one that can't be read beside the authority", PEM + UNREADABLE],
])("what is published and can't be used is told of, and the last authority stays: %s", async (_, text) => {
  const { time, cell, events, lead } = start();
  const end = lead();
  await time.advance(2_000);
  cell.published = text;
  await time.advance(2_000);
  cell.put(VALIDATING);
  await time.advance(2_000);
  expect(cell.bundles(VALIDATING)).toEqual([encodeCaBundle(PEM), encodeCaBundle(PEM)]);
  expect(events).toContainEqual({
    ...{ kind: "failed", what: PUBLISHED_CONFIG_MAP, tag: "unavailable" },
    message: expect.stringMatching(/ca\.crt has (no certificate|a certificate that can't be read)/),
  });
  await end();
});

// Another injector, such as that of a second installation or of cert-manager, puts its own authority back at once.
test("does not write without a pause where another injector disagrees", async () => {
  const { time, cell, events, lead } = start();
  const end = lead();
  await time.advance(2_000);
  const before = events.length;
  for (let round = 0; round < 1_000; round++) {
    cell.alter(VALIDATING, ({ clientConfig }) => Object.assign(clientConfig, { caBundle: "b3RoZXI=" }));
    await time.advance(10);
  }
  const injected = events.slice(before).filter(({ kind }) => kind === "injected").length;
  expect(injected).toBeGreaterThanOrEqual(5);
  expect(injected).toBeLessThanOrEqual(11);
  await time.advance(2_000);
  expect(cell.bundles(VALIDATING)).toEqual([encodeCaBundle(PEM), encodeCaBundle(PEM)]);
  await end();
});
