/**
 * Servers, processes and wires that are neither up nor down: an etcd that stalls or has no space left, components with
 * a fifth of a processor, a load balancer that cuts silent connections, a thin wire. Nothing is restarted, and
 * everything works again after the end of each (docs/faults.md).
 */
import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, describe, test } from "vitest";
import type { ManagedProcess } from "../../scripts/control-plane/managed-process.ts";
import { printTable } from "./components/component-evidence.ts";
import { ComponentHarness } from "./components/component-harness.ts";
import { ComponentLinks } from "./components/component-links.ts";
import type { FaultProxy } from "./proxy/proxy.ts";

const HOLD_MS = 20_000;

let harness: ComponentHarness;

beforeAll(async () => {
  harness = await ComponentHarness.start((directory) => new ComponentLinks(directory));
});

afterAll(async () => {
  printTable();
  await harness?.[Symbol.asyncDispose]();
});

/** While `begin` lasts, work goes on as it can. */
async function during(name: string, begin: () => Promise<unknown>, end: () => Promise<unknown>): Promise<void> {
  await harness.during({ name, links: harness.links.all, isOutage: false, begin, end });
}

/** The processes run for a part of the time only. */
async function throttle(processes: readonly ManagedProcess[], stoppedMs: number, runningMs: number): Promise<void> {
  for (let ms = 0; ms < HOLD_MS; ms += stoppedMs + runningMs) {
    for (const one of processes) one.freeze();
    await delay(stoppedMs);
    for (const one of processes) one.thaw();
    await delay(runningMs);
  }
}

const nothing = async (): Promise<void> => {};

describe("servers", () => {
  test("etcds that stall for 700 ms of each second", async () => {
    const etcds = [harness.core, harness.cell].map(({ processes }) => processes.etcd);
    await during("etcd stalls", () => throttle(etcds, 700, 300), nothing);
  });

  test("etcds without space, which answer reads and refuse writes", async () => {
    const set = (on: boolean) => Promise.all([harness.core, harness.cell].map(({ etcd }) => etcd.outOfSpace(on)));
    const begin = async (): Promise<void> => {
      await set(true);
      await delay(HOLD_MS);
    };
    await during("etcd without space", begin, () => set(false));
  });
});

test("components that run for 100 ms of each 500 ms", async () => {
  const processes = [...harness.components.values()].map((component) => component.process);
  await during("throttled", () => throttle(processes, 400, 100), nothing);
});

describe("wires", () => {
  test.each<[string, (proxy: FaultProxy, on: boolean) => void]>([
    ["silent connections cut after 3 s", (proxy, on) => proxy.resetIdle(on ? 3_000 : 0)],
    ["32 kB/s", (proxy, on) => proxy.setConditions(on ? { bytesPerMs: 32 } : {})],
  ])("%s", async (name, set) => {
    const all = async (on: boolean): Promise<void> => {
      for (const { proxy } of harness.links.all) set(proxy, on);
    };
    const begin = async (): Promise<void> => {
      await all(true);
      await delay(HOLD_MS);
    };
    await during(name, begin, () => all(false));
  });
});
