/** Watches that parts of a process share. */
import { expect, test } from "vitest";
import { ConfigurationTable } from "../../../test/support/aggregator/configuration-table.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { ConfigurationWatches } from "./configuration-watch.ts";

const VALIDATING = "validatingwebhookconfigurations";

test("a part that closes its watch leaves it open to the others, and the last one ends it", async () => {
  const time = new VirtualTime();
  const cell = new ConfigurationTable();
  const watches = new ConfigurationWatches({ transport: cell, ports: time, onEvent: () => {} });
  const told = { one: 0, other: 0 };
  const one = watches.open(VALIDATING, "podseidon", () => told.one++);
  const other = watches.open(VALIDATING, "podseidon", () => told.other++);
  expect(other.watch).toBe(one.watch);
  await time.advance(1_000);
  await one.close();
  const before = { ...told };
  cell.put(`${VALIDATING}/podseidon`);
  await time.advance(1_000);
  expect(told.one).toBe(before.one);
  expect(told.other).toBeGreaterThan(before.other);
  expect(other.watch.get("podseidon")).toBeDefined();

  const closing = other.close();
  await time.advance(10_000);
  await closing;
  expect(time.pendingTimers).toBe(0);
  const next = watches.open(VALIDATING, "podseidon", () => {});
  expect(next.watch).not.toBe(one.watch);
  await time.advance(1_000);
  expect(next.watch.get("podseidon")).toBeDefined();
  await Promise.all([next.close(), time.advance(10_000)]);
});
