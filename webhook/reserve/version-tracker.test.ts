import { describe, expect, test } from "vitest";
import { ProtectorVersion } from "../../shared/decide/state/protector-version.ts";
import type { Aggregation } from "../../shared/schema/podprotector.ts";
import { aggregation, protector } from "../../test/support/webhook/fixtures.ts";
import { isOlder, isWrittenByWebhook, VersionTracker } from "./version-tracker.ts";

interface Version {
  readonly version: string;
  readonly uid?: string;
  readonly receivedMs: number;
  readonly sentMs?: number;
  readonly counts?: Partial<Aggregation>;
}

function entry({ version, uid = "one", receivedMs, sentMs, counts = {} }: Version): ProtectorVersion {
  const object = protector(1, { uid, aggregation: counts });
  return new ProtectorVersion(
    { ...object, metadata: { ...object.metadata, resourceVersion: version } },
    receivedMs,
    sentMs,
  );
}

function respecified(version: string): ProtectorVersion {
  const { object, receivedMs } = entry({ version, receivedMs: 1 });
  return new ProtectorVersion({ ...object, metadata: { ...object.metadata, generation: 2 } }, receivedMs);
}

describe("the newest version known", () => {
  test("comes from the watch, which changes nothing while it lags behind an own read", () => {
    const known = new VersionTracker();
    expect(known.offer(entry({ version: "5", receivedMs: 0 }))).toBe("newer");
    expect(known.answered(entry({ version: "9", receivedMs: 10, sentMs: 5 }))).toBe("newer");
    expect(known.offer(entry({ version: "7", receivedMs: 11 }))).toBe("known");
    expect(known.newest?.version).toBe("9");
    expect(known.offer(entry({ version: "10", receivedMs: 12 }))).toBe("newer");
    expect(known.newest?.version).toBe("10");
  });

  test("versions are compared as numbers", () => {
    const known = new VersionTracker();
    known.offer(entry({ version: "9", receivedMs: 0 }));
    expect(known.offer(entry({ version: "10", receivedMs: 1 }))).toBe("newer");
  });

  test("went back when a read is older than what was known before it was sent", () => {
    const known = new VersionTracker();
    const cached = entry({ version: "9", receivedMs: 0 });
    known.offer(cached);
    expect(known.answered(entry({ version: "5", receivedMs: 20, sentMs: 10 }))).toBe("wentBack");
    expect(known.newest?.version).toBe("5");
    expect(known.offer(cached)).toBe("known");
    expect(known.offer(entry({ version: "8", receivedMs: 20 }))).toBe("known");
    expect(known.newest?.version).toBe("5");
    expect(known.offer(entry({ version: "6", receivedMs: 21 }))).toBe("newer");
  });

  test("stays when a read is older than what arrived meanwhile", () => {
    const known = new VersionTracker();
    known.offer(entry({ version: "5", receivedMs: 0 }));
    known.offer(entry({ version: "9", receivedMs: 15 }));
    expect(known.answered(entry({ version: "7", receivedMs: 20, sentMs: 10 }))).toBe("known");
    expect(known.answered(entry({ version: "7", receivedMs: 20, sentMs: 15 }))).toBe("known");
    expect(known.newest?.version).toBe("9");
  });

  test("stays when a read has found the object whose successor arrived meanwhile", () => {
    const known = new VersionTracker();
    known.offer(entry({ version: "5", receivedMs: 0 }));
    const successor = entry({ version: "9", uid: "two", receivedMs: 15 });
    known.offer(successor);
    expect(known.answered(entry({ version: "7", receivedMs: 20, sentMs: 10 }))).toBe("known");
    expect(known.newest).toBe(successor);
  });

  test("another UID is another object", () => {
    const known = new VersionTracker();
    known.offer(entry({ version: "5", receivedMs: 0 }));
    expect(known.answered(entry({ version: "9", uid: "two", receivedMs: 20, sentMs: 10 }))).toBe("replaced");
    expect(known.newest?.uid).toBe("two");
  });

  test("stays when a late watch shows the object that was replaced", () => {
    const known = new VersionTracker();
    known.offer(entry({ version: "5", receivedMs: 0 }));
    const successor = entry({ version: "9", uid: "two", receivedMs: 20, sentMs: 10 });
    known.answered(successor);
    expect(known.offer(entry({ version: "7", receivedMs: 21 }))).toBe("known");
    expect(known.newest).toBe(successor);
    expect(known.offer(entry({ version: "11", uid: "three", receivedMs: 22 }))).toBe("replaced");
  });

  test("is not taken from a watch that still has the replaced object, whose version can't be compared", () => {
    const known = new VersionTracker();
    const cached = entry({ version: "v5", receivedMs: 0 });
    known.offer(cached);
    known.answered(entry({ version: "v9", uid: "two", receivedMs: 20, sentMs: 10 }));
    expect(known.offer(cached)).toBe("known");
    expect(known.newest?.uid).toBe("two");
  });

  test("stays as it was read, so that a denial may rest on it, when the watch shows the same version", () => {
    const known = new VersionTracker();
    known.offer(entry({ version: "5", receivedMs: 0 }));
    const read = entry({ version: "9", receivedMs: 20, sentMs: 10 });
    known.answered(read);
    expect(known.offer(entry({ version: "9", receivedMs: 21 }))).toBe("known");
    expect(known.newest).toBe(read);
  });

  test("is replaced by whatever object the watch shows after one that it has shown", () => {
    const known = new VersionTracker();
    known.offer(entry({ version: "9", receivedMs: 0 }));
    expect(known.offer(entry({ version: "5", uid: "two", receivedMs: 1 }))).toBe("replaced");
  });

  test("is that of the newest read, though the watch has shown the same", () => {
    const known = new VersionTracker();
    const first = entry({ version: "9", receivedMs: 20, sentMs: 10 });
    expect(known.answered(first)).toBe("newer");
    const again = entry({ version: "9", receivedMs: 40, sentMs: 30 });
    expect(known.answered(again)).toBe("known");
    expect(known.newest).toBe(again);
  });

  test("starts again after lost history, and not from what the watch had before", () => {
    const known = new VersionTracker();
    const before = entry({ version: "v9", receivedMs: 0 });
    known.offer(before);
    const restored = entry({ version: "v5", receivedMs: 10 });
    known.restart(restored);
    expect(known.newest).toBe(restored);
    expect(known.offer(before)).toBe("known");
  });

  test.each<[string, string, boolean]>([
    ["9", "10", true],
    ["10", "9", false],
    ["9", "9", false],
    ["v9", "v10", false],
    ["v9", "100", false],
    ["9", "v10", false],
  ])("%s is older than %s: %s", (a, b, expected) => {
    expect(isOlder(entry({ version: a, receivedMs: 0 }), entry({ version: b, receivedMs: 0 }))).toBe(expected);
  });

  test("is not taken from a watch that still has a deleted object", () => {
    const known = new VersionTracker();
    const cached = entry({ version: "5", receivedMs: 0 });
    known.offer(cached);
    known.forget();
    expect(known.offer(cached)).toBe("known");
    expect(known.newest).toBeUndefined();
  });
});

describe("the time since which a cell's counts are known", () => {
  test("stays after an own write, and moves with an aggregator's", () => {
    const known = new VersionTracker();
    known.offer(entry({ version: "5", receivedMs: 100 }));
    expect(known.cellSinceMs("cell-1")).toBe(100);
    known.answered(entry({ version: "6", receivedMs: 200, sentMs: 190 }));
    expect(known.cellSinceMs("cell-1")).toBe(100);
    known.offer(entry({ version: "7", receivedMs: 300, counts: { resourceVersion: "101" } }));
    expect(known.cellSinceMs("cell-1")).toBe(300);
    expect(known.cellSinceMs("elsewhere")).toBe(Number.NEGATIVE_INFINITY);
  });

  test("begins again with an object of the same counts that comes after a deletion", () => {
    const known = new VersionTracker();
    known.offer(entry({ version: "5", receivedMs: 100 }));
    known.forget();
    expect(known.cellSinceMs("cell-1")).toBe(Number.NEGATIVE_INFINITY);
    known.offer(entry({ version: "9", uid: "two", receivedMs: 300 }));
    expect(known.cellSinceMs("cell-1")).toBe(300);
  });
});

describe("the writer of a version", () => {
  const before = entry({ version: "5", receivedMs: 0 });
  test.each([
    ["history alone: a webhook", entry({ version: "6", receivedMs: 1 }), true],
    [
      "counts: an aggregator",
      entry({ version: "6", receivedMs: 1, counts: aggregation(3, { resourceVersion: "7" }) }),
      false,
    ],
    ["another spec, too: whoever sets it", respecified("6"), false],
    ["the same version: no write", entry({ version: "5", receivedMs: 1 }), false],
    ["another object", entry({ version: "6", uid: "two", receivedMs: 1 }), false],
  ])("%s", (_name, after, expected) => {
    expect(isWrittenByWebhook(before, after)).toBe(expected);
  });
});
