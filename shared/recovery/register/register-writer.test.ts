import { describe, expect, test } from "vitest";
import { ConfigMaps } from "../../../test/support/aggregator/config-maps.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import {
  ACKNOWLEDGEMENTS,
  acknowledgementKey,
  MAX_SEGMENTS,
  REGISTER_LABEL,
  REGISTER_LABEL_VALUE,
  SEGMENT_ENTRIES,
} from "./register-format.ts";
import { RegisterWriter } from "./register-writer.ts";

const DAY_MS = 24 * 3_600_000;

function rig() {
  const time = new VirtualTime();
  const maps = new ConfigMaps();
  const dropped: number[] = [];
  const blocked: (readonly string[])[] = [];
  const stored = { segments: { values: () => maps.maps.values() } };
  const register = new RegisterWriter({
    api: maps,
    ports: time,
    namespace: "podseidon-system",
    stored,
    timeoutMs: 1_000,
    mayWrite: () => true,
    onDropped: (segments) => dropped.push(segments),
    onBlocked: (cells) => blocked.push(cells),
  });
  return { time, maps, register, dropped, blocked };
}

const entries = (count: number, prefix: string): Record<string, string> =>
  Object.fromEntries(Array.from({ length: count }, (_, index) => [`${prefix}-${index}`, "2020-01-01T00:00:00Z a/b x"]));

describe("a release", () => {
  test("is recorded when the call returns, in a new segment if there is none", async () => {
    const { maps, register } = rig();
    expect(await register.record("u1", "now a/b NotRequired")).toMatchObject({ kind: "ok" });
    expect(maps.data("podseidon-released-0")).toEqual({ u1: "now a/b NotRequired" });
    expect(maps.maps.get("podseidon-released-0")?.metadata.labels).toEqual({
      "podseidon.kubewharf.io/register": "released",
    });
  });

  test("shares the next write with others that arrive during a write", async () => {
    const { maps, register } = rig();
    maps.put("podseidon-released-0", {});
    await Promise.all(Array.from({ length: 50 }, (_, index) => register.record(`u${index}`, "t")));
    expect(maps.writes).toEqual(["patch podseidon-released-0", "patch podseidon-released-0"]);
    expect(Object.keys(maps.data("podseidon-released-0") ?? {})).toHaveLength(50);
  });

  test("goes into a segment that has the label by which it is read, also where somebody took that off", async () => {
    const { maps, register } = rig();
    maps.put("podseidon-released-0", { u0: "t" });
    await register.record("u1", "t");
    expect(maps.maps.get("podseidon-released-0")).toMatchObject({
      metadata: { labels: { [REGISTER_LABEL]: REGISTER_LABEL_VALUE } },
      data: { u0: "t", u1: "t" },
    });
  });

  test("goes into the next segment when another process has filled the segment", async () => {
    const { maps, register } = rig();
    maps.put("podseidon-released-7", entries(SEGMENT_ENTRIES, "old"));
    maps.put("podseidon-released-by-hand", {});
    await register.record("u1", "t");
    await register.record("u2", "t");
    expect(maps.data("podseidon-released-8")).toEqual({ u1: "t", u2: "t" });
  });

  test("returns the failure to record it", async () => {
    const { maps, register } = rig();
    maps.faults.push({ kind: "unavailable", error: new Error("no"), sent: true });
    expect(await register.record("u1", "t")).toMatchObject({ kind: "unavailable" });
    expect(await register.record("u1", "t")).toMatchObject({ kind: "ok" });
  });
});

describe("a segment is deleted", () => {
  /** The segment has version 101. */
  test.each<[string, string, Readonly<Record<string, string>>, boolean]>([
    ["when all entries are old and no cell is registered", "2025-12-30T00:00:00Z", {}, true],
    ["when every cell has acknowledged it", "2025-12-30T00:00:00Z", { a: "101", b: "102" }, true],
    ["not before one cell has acknowledged it", "2025-12-30T00:00:00Z", { a: "101", b: "100" }, false],
    ["not while an acknowledgement is unreadable", "2025-12-30T00:00:00Z", { a: "?" }, false],
    ["not by a number of another core, which the core has not reached", "2025-12-30T00:00:00Z", { a: "900" }, false],
    ["not within a day", "2025-12-31T12:00:00Z", { a: "101" }, false],
    ["not with an entry without a time", "by hand", { a: "101" }, false],
  ])("%s", async (_name, time, cells, expected) => {
    const { maps, register } = rig();
    maps.put("podseidon-released-0", { a: "2020-01-01T00:00:00Z a/b x", b: `${time} a/b x` });
    maps.put(ACKNOWLEDGEMENTS, cells);
    await register.collect(new AbortController().signal);
    expect(maps.maps.has("podseidon-released-0")).toBe(!expected);
  });
});

test("no segment is deleted while the acknowledgements can't be read", async () => {
  const { maps, register } = rig();
  maps.put("podseidon-released-0", entries(1, "a"));
  maps.faults.push({ kind: "unavailable", error: new Error("no"), sent: true });
  await register.collect(new AbortController().signal);
  expect(maps.maps.has("podseidon-released-0")).toBe(true);
  await register.collect(new AbortController().signal);
  expect(maps.maps.has("podseidon-released-0")).toBe(false);
});

describe("the register is bounded", () => {
  test("deletes obsolete segments, never the operators' one", async () => {
    const { maps, register, dropped, time } = rig();
    maps.put("podseidon-released-0", entries(1, "a"));
    maps.put("podseidon-released-by-hand", entries(1, "b"));
    maps.put("podseidon-released-1", { fresh: `${new Date(time.clock.nowMs() - DAY_MS / 2).toISOString()} a/b x` });
    maps.put(ACKNOWLEDGEMENTS, { "cell-1": "103" });
    await register.collect(new AbortController().signal);
    expect([...maps.maps.keys()]).toEqual(["podseidon-released-by-hand", "podseidon-released-1", ACKNOWLEDGEMENTS]);
    expect(dropped).toEqual([1]);
  });

  const fill = (maps: ConfigMaps, text: string): void => {
    for (let number = 0; number < MAX_SEGMENTS + 3; number++) maps.put(`podseidon-released-${number}`, { x: text });
  };

  test("when there are too many, deletes the oldest that every cell has acknowledged, however young", async () => {
    const { maps, register, time, dropped, blocked } = rig();
    fill(maps, `${new Date(time.clock.nowMs()).toISOString()} a/b x`);
    maps.put(ACKNOWLEDGEMENTS, { "cell-1": "102", "cell-2": "203" });
    await register.collect(new AbortController().signal);
    expect(maps.maps.has("podseidon-released-1")).toBe(false);
    expect(maps.maps.has("podseidon-released-2")).toBe(true);
    expect([dropped, blocked]).toEqual([[2], [["cell-1"]]]);
  });

  test("keeps what a lagging cell has not acknowledged, however many there are, and names the cell", async () => {
    const { maps, register, dropped, blocked } = rig();
    fill(maps, "2020-01-01T00:00:00Z a/b x");
    maps.put(ACKNOWLEDGEMENTS, { [acknowledgementKey("old~one_1")]: "0", live: "203" });
    await register.collect(new AbortController().signal);
    expect(maps.maps.size).toBe(MAX_SEGMENTS + 4);
    expect([dropped, blocked]).toEqual([[], [["old~one_1"]]]);
    await maps.patch(ACKNOWLEDGEMENTS, "", { data: { [acknowledgementKey("old~one_1")]: null } }, () => undefined);
    await register.collect(new AbortController().signal);
    expect([...maps.maps.keys()]).toEqual([ACKNOWLEDGEMENTS]);
  });
});
