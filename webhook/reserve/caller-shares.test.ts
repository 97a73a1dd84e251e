import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, test } from "vitest";
import { sleep } from "../../shared/runtime/clock.ts";
import type { Pod } from "../../shared/schema/pod.ts";
import { makeCell, makePod } from "../../test/support/decide/fixtures.ts";
import { heldBucket, stateOf } from "../../test/support/decide/quota-fixtures.ts";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import type { LiveRead } from "../request/cell-client.ts";
import { CallerShares, type Requester } from "./caller-shares.ts";

const SETTLE_MS = 75_000;
const EVE = { address: "10.0.0.7", username: "eve" };

/** What the object has stored for long, and what the cell has. */
interface Found {
  readonly stored: boolean;
  readonly live: LiveRead["kind"] | "terminating" | "finished" | "changed" | "old" | "replaced";
}

class World {
  readonly time = new VirtualTime();
  reads = 0;
  readonly #shares: CallerShares;
  found: Found;
  /** What the cell has of pods whose names begin with this word. */
  forged: Found["live"] = "found";

  constructor(found: Found = { stored: true, live: "found" }) {
    this.found = found;
    this.#shares = new CallerShares({
      ports: this.time,
      settleMs: SETTLE_MS,
      cells: new Map([
        ["a", { readPod: (_, name) => this.#readPod(name) }],
        ["b", { readPod: (_, __, timeoutMs) => this.#readNothing(timeoutMs) }],
      ]),
    });
  }

  async #readPod(name: string): Promise<LiveRead> {
    this.reads++;
    const live = name.startsWith("forged") ? this.forged : this.found.live;
    if (live === "gone") return { kind: "gone" };
    if (live === "failed") return { kind: "failed", message: "no answer" };
    // Before Kubernetes 1.33, pods have no generation.
    const generation = live === "changed" ? 2 : live === "old" ? 0 : 1;
    const changed = { terminating: live === "terminating", generation };
    const phase = live === "finished" ? "Failed" : "Running";
    const pod = makePod(name);
    const uid = live === "replaced" ? "another" : pod.uid;
    return { kind: "found", pod: { ...pod, ...changed, phase, uid }, sentMs: 0 };
  }

  async #readNothing(timeoutMs: number): Promise<LiveRead> {
    await sleep(this.time, timeoutMs);
    return { kind: "failed", message: "no answer" };
  }

  reserve(caller: Requester, name = "x", operation: "DELETE" | "EVICT" | "UPDATE" = "DELETE", cell = "a"): void {
    const buckets = this.found.stored ? [heldBucket(`uid-${name}`, { podName: name })] : [];
    const state = stateOf([makeCell(cell, 9, buckets)]);
    this.#shares.reserved("core/default/web", caller, { cell, operation, pod: makePod(name) }, () => ({ state }));
  }

  reserveOf(pod: Pod): void {
    const state = stateOf([makeCell("a", 9)]);
    this.#shares.reserved("core/default/web", EVE, { cell: "a", operation: "DELETE", pod }, () => ({ state }));
  }

  keeps(caller: Requester, protector = "core/default/web"): boolean {
    return this.#shares.keepsShare(protector, caller);
  }
}

test("a caller whose reservation did not happen leaves a share of that protector, and others do not", async () => {
  const world = new World();
  world.reserve(EVE);
  await world.time.advance(50_000);
  expect(world.keeps(EVE)).toBe(false);
  await world.time.advance(11_000);
  expect(world.keeps(EVE)).toBe(true);
  expect(world.keeps({ ...EVE, username: "drain" })).toBe(false);
  expect(world.keeps({ ...EVE, address: "10.0.0.8" })).toBe(false);
  expect(world.keeps(EVE, "core/default/other")).toBe(false);
  await world.time.advance(8 * SETTLE_MS);
  expect(world.keeps(EVE)).toBe(false);
});

test.each<[string, Found, "DELETE" | "UPDATE", number]>([
  ["is settled", { stored: false, live: "found" }, "DELETE", 0],
  ["has happened, and no aggregator has seen it", { stored: true, live: "gone" }, "DELETE", 1],
  ["has happened, and another pod has the name", { stored: true, live: "replaced" }, "DELETE", 1],
  ["is happening", { stored: true, live: "terminating" }, "DELETE", 1],
  ["has ended its pod", { stored: true, live: "finished" }, "DELETE", 1],
  ["has changed its pod", { stored: true, live: "changed" }, "UPDATE", 1],
  ["can't be told", { stored: true, live: "failed" }, "DELETE", 1],
  ["may have changed its pod, which has no generation", { stored: true, live: "old" }, "UPDATE", 1],
])("a caller whose reservation %s leaves nothing", async (_, found, operation, reads) => {
  const world = new World(found);
  world.reserve(EVE, "x", operation);
  await world.time.advance(61_000);
  expect(world.keeps(EVE)).toBe(false);
  expect(world.reads).toBe(reads);
});

test.each<[string, Found, "DELETE" | "UPDATE"]>([
  ["a deletion whose pod was only changed", { stored: true, live: "changed" }, "DELETE"],
  ["a change that left the pod as it was", { stored: true, live: "found" }, "UPDATE"],
])("%s did not happen", async (_, found, operation) => {
  const world = new World(found);
  world.reserve(EVE, "x", operation);
  await world.time.advance(61_000);
  expect(world.keeps(EVE)).toBe(true);
});

test("a cell that does not answer delays no judgement about another", async () => {
  const world = new World();
  for (let index = 0; index < 100; index++) world.reserve({ ...EVE, address: "10.0.0.8" }, `x${index}`, "DELETE", "b");
  world.reserve(EVE);
  await world.time.advance(65_000);
  expect(world.keeps(EVE)).toBe(true);
});

test("what can't be told changes nothing", async () => {
  const world = new World();
  world.reserve(EVE);
  await world.time.advance(61_000);
  world.found = { stored: true, live: "failed" };
  for (const name of ["y", "z"]) world.reserve(EVE, name);
  await world.time.advance(61_000);
  expect(world.keeps(EVE)).toBe(true);
});

test("a caller leaves nothing while most of what its address reserves happens", async () => {
  const world = new World();
  world.reserve(EVE);
  await world.time.advance(61_000);
  expect(world.keeps(EVE)).toBe(true);
  for (const keeps of [true, false]) {
    world.found = { stored: true, live: "found" };
    world.reserve(EVE, "gone");
    await world.time.advance(50_000);
    world.found = { stored: false, live: "gone" };
    await world.time.advance(11_000);
    expect(world.keeps(EVE)).toBe(keeps);
  }
  world.found = { stored: false, live: "found" };
  world.reserve(EVE, "superseded");
  await world.time.advance(61_000);
  expect(world.keeps(EVE)).toBe(false);
  world.found = { stored: true, live: "found" };
  world.reserve(EVE, "again");
  await world.time.advance(61_000);
  expect(world.keeps(EVE)).toBe(true);
});

test.each<[string, Found["live"], "DELETE" | "UPDATE"]>([
  ["pods that it made up", "gone", "DELETE"],
  ["pods that were ending before", "terminating", "DELETE"],
  ["changes that were made before", "changed", "UPDATE"],
])("a caller is not let off for reviews of %s", async (_, live, operation) => {
  const world = new World();
  world.forged = live;
  // Before anything of the address is judged, and afterwards.
  for (let round = 0; round < 2; round++) {
    world.found = { stored: true, live: "found" };
    world.reserve(EVE);
    world.found = { stored: false, live: "found" };
    for (let index = 0; index < 9; index++) world.reserve(EVE, `forged-${index}`, operation);
    await world.time.advance(61_000);
    expect(world.keeps(EVE)).toBe(true);
  }
});

test("an address that makes up names is one caller", async () => {
  const world = new World();
  for (let index = 0; index < 4; index++) world.reserve({ ...EVE, username: `eve-${index}` }, `x${index}`);
  await world.time.advance(61_000);
  expect(world.keeps({ ...EVE, username: "eve-4" })).toBe(true);
  expect(world.keeps({ ...EVE, address: "10.0.0.8" })).toBe(false);
});

test("of a pod whose reservation is watched, megabytes of readiness gates are not kept", () => {
  setFlagsFromString("--expose-gc");
  const collect: () => void = runInNewContext("gc");
  const world = new World();
  const gateOf = (pod: number) => (_: unknown, gate: number) => `${pod}-${gate}-${"g".repeat(300)}`;
  collect();
  const before = process.memoryUsage().heapUsed;
  for (let index = 0; index < 100; index++) {
    const readinessGates = Array.from({ length: 3_000 }, gateOf(index));
    world.reserveOf(JSON.parse(JSON.stringify(makePod(`x${index}`, { readinessGates }))));
  }
  collect();
  expect(process.memoryUsage().heapUsed - before).toBeLessThan(20_000_000);
});

test("no more than 2,000 reservations are watched, and those that have happened make room", async () => {
  for (const stored of [true, false]) {
    const world = new World({ stored, live: "found" });
    for (let index = 0; index < 2_000; index++) world.reserve({ address: `10.1.${index}`, username: "u" }, `x${index}`);
    world.reserve(EVE);
    await world.time.advance(61_000);
    expect(world.keeps(EVE)).toBe(false);
    expect(world.reads).toBe(stored ? 2_000 : 0);
    expect(world.keeps({ address: "10.1.0", username: "u" })).toBe(false);
    expect(world.keeps({ address: "10.1.1999", username: "u" })).toBe(stored);
  }
  const world = new World({ stored: false, live: "found" });
  for (let index = 0; index < 2_000; index++) world.reserve({ address: `10.1.${index}`, username: "u" }, `x${index}`);
  world.found = { stored: true, live: "found" };
  world.reserve(EVE);
  await world.time.advance(61_000);
  expect(world.keeps(EVE)).toBe(true);
});
