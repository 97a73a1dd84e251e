import { expect, test } from "vitest";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { CoreHistory } from "./core-history.ts";

const MINUTE_MS = 60_000;

function history() {
  const time = new VirtualTime();
  return { time, core: new CoreHistory(time.clock) };
}

test("a list that is older than the one before it is the first after a restore", () => {
  const { core } = history();
  expect(core.isFirstOfHistory("100")).toBe(false);
  expect(core.isFirstOfHistory("90")).toBe(true);
  expect(core.isFirstOfHistory("91")).toBe(false);
});

test("a restore that a list has shown is no other one when the Lease shows it, too", () => {
  const { core } = history();
  core.leaseSeen("105");
  expect([core.isFirstOfHistory("100"), core.isFirstOfHistory("90")]).toEqual([false, true]);
  core.leaseSeen("92");
  expect(core.isFirstOfHistory("93")).toBe(false);
});

test("a Lease that goes back makes the next list the first after a restore", () => {
  const { core } = history();
  expect(core.isFirstOfHistory("100")).toBe(false);
  core.leaseSeen("105");
  core.leaseSeen("80");
  expect(core.isFirstOfHistory("85")).toBe(true);
  expect(core.isFirstOfHistory("86")).toBe(false);
});

test("a Lease that is renewed while a list is on its way, or that is in another etcd, shows nothing", () => {
  const { core } = history();
  core.leaseSeen("95");
  core.leaseSeen("110");
  expect(core.isFirstOfHistory("101")).toBe(false);
  core.leaseSeen("120");
  expect(core.isFirstOfHistory("105")).toBe(false);
});

test("a restore that raised the versions is one", () => {
  const { core } = history();
  core.leaseSeen("95");
  core.leaseSeen("1000000095");
  expect(core.isFirstOfHistory("1000000096")).toBe(true);
});

test("a standby that saw the Lease go back answers as the next leader, and not much later", async () => {
  const { time, core } = history();
  core.leaseSeen("1000");
  core.leaseSeen("500");
  await time.advance(MINUTE_MS);
  core.leaseSeen("510");
  expect(core.isFirstOfHistory("520")).toBe(true);
  core.leaseSeen("400");
  await time.advance(6 * MINUTE_MS);
  expect(core.isFirstOfHistory("450")).toBe(false);
});
