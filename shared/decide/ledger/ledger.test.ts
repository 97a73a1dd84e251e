import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  hostileBucket,
  ledgerOf,
  reservation,
  reservationCount,
  reservations,
} from "../../../test/support/decide/arbitraries.ts";
import type { Bucket, Operation } from "../../schema/podprotector.ts";
import { Ledger } from "./ledger.ts";
import { MAX_PLAIN_BUCKETS } from "./ledger-encode.ts";
import { pack } from "./pack.ts";
import { EARLIER, hashUid, NONCES_KEPT, type Reservation } from "./reservation.ts";

const T1 = "2026-05-01T12:00:00.000001Z";
const T2 = "2026-05-01T12:00:01.000000Z";

function sumOfWeights(given: readonly Reservation[]): number {
  return given.reduce((sum, { weight }) => sum + weight, 0);
}

/** What upstream would subtract: it knows startTime, endTime, podUID, podName and counter. */
function upstreamWeight(buckets: readonly Bucket[]): number {
  return buckets.reduce((sum, { counter }) => sum + (counter ?? 1), 0);
}

function onlyUpstreamFields(bucket: Bucket): Bucket {
  const { startTime, endTime, podUID, podName, counter } = bucket;
  return {
    startTime,
    ...(endTime === undefined ? {} : { endTime }),
    ...(podUID === undefined ? {} : { podUID }),
    ...(podName === undefined ? {} : { podName }),
    ...(counter === undefined ? {} : { counter }),
  };
}

function dropFrom(ledger: Ledger, one: Reservation, operation: Operation): void {
  const current = ledger.get(one.uid ?? "", one.podName) ?? one;
  if (current.uid !== undefined) ledger.dropRecord(current, operation);
}

function admitAll(ledger: Ledger, { uid = "", podName, weight, records }: Reservation): void {
  for (const [operation, { nonces, startMicros, ...rest }] of records) {
    for (const nonce of nonces)
      ledger.admit(uid, podName, { ...rest, operation, nonce, atMicros: startMicros }, weight);
  }
}

describe("algebra of the ledger", () => {
  const threshold = fc.oneof(fc.integer({ min: -1, max: 12 }), fc.constant(1000));

  test("weight is conserved by writing and reading, at any threshold", () => {
    fc.assert(
      fc.property(reservations(30), threshold, (given, compactThreshold) => {
        const buckets = ledgerOf(given).encode(compactThreshold);
        const read = Ledger.parse(buckets);
        expect(read.weight).toBe(sumOfWeights(given));
        expect(upstreamWeight(buckets)).toBe(sumOfWeights(given));
        expect(reservationCount(read)).toBe(given.length);
        expect(read.unreadableBuckets).toBe(0);
      }),
    );
  });

  test("records survive writing and reading", () => {
    fc.assert(
      fc.property(reservations(20), threshold, (given, compactThreshold) => {
        const read = Ledger.parse(ledgerOf(given).encode(compactThreshold));
        for (const one of given) {
          const found = read.get(one.uid ?? "", one.podName);
          expect(found?.weight).toBe(one.weight);
          expect(found?.podName).toBe(one.podName);
          expect(found?.records).toEqual(one.records);
        }
      }),
    );
  });

  test("weight survives a component that knows only upstream's fields", () => {
    fc.assert(
      fc.property(reservations(20), threshold, (given, compactThreshold) => {
        const buckets = ledgerOf(given).encode(compactThreshold).map(onlyUpstreamFields);
        expect(Ledger.parse(buckets).weight).toBe(sumOfWeights(given));
      }),
    );
  });

  test("the order of buckets does not matter", () => {
    const shuffled = fc
      .tuple(fc.array(hostileBucket, { maxLength: 8 }), reservations(8))
      .map(([hostile, given]) => [...hostile, ...ledgerOf(given).encode(4)])
      .chain((buckets) =>
        fc.tuple(
          fc.constant(buckets),
          fc.shuffledSubarray(buckets, { minLength: buckets.length, maxLength: buckets.length }),
        ),
      );
    fc.assert(
      fc.property(shuffled, ([buckets, other]) => {
        const [a, b] = [Ledger.parse(buckets), Ledger.parse(other)];
        expect(b.weight).toBe(a.weight);
        expect(reservationCount(b)).toBe(reservationCount(a));
      }),
    );
  });

  test("the order in which reservations came does not change what is written", () => {
    fc.assert(
      fc.property(reservations(20), fc.nat(1000), (given, salt) => {
        const shuffled = given
          .map((one, index) => [Math.imul(index + 1, 2654435761) ^ salt, one] as const)
          .sort(([a], [b]) => a - b)
          .map(([, one]) => one);
        expect(ledgerOf(shuffled).encode(8)).toEqual(ledgerOf(given).encode(8));
      }),
    );
  });

  test("writing what was read changes nothing", () => {
    fc.assert(
      fc.property(reservations(20), threshold, (given, compactThreshold) => {
        const buckets = Ledger.parse(ledgerOf(given).encode(compactThreshold)).encode(compactThreshold);
        expect(Ledger.parse(buckets).encode(compactThreshold)).toEqual(buckets);
      }),
    );
  });

  test("reading the same buckets twice over counts each pod once", () => {
    fc.assert(
      fc.property(reservations(12), (given) => {
        const buckets = ledgerOf(given).encode(4);
        const twice = Ledger.parse([...buckets, ...buckets]);
        expect(twice.weight).toBe(sumOfWeights(given));
        expect(reservationCount(twice)).toBe(given.length);
      }),
    );
  });

  test("every history that the schema accepts is read without a throw, weighs at least 0 and is written again", () => {
    fc.assert(
      fc.property(fc.array(hostileBucket, { maxLength: 20 }), (buckets) => {
        const ledger = Ledger.parse(buckets);
        expect(ledger.weight).toBeGreaterThanOrEqual(0);
        const again = Ledger.parse(ledger.encode(3));
        expect(again.weight).toBe(ledger.weight);
        expect(reservationCount(again)).toBe(reservationCount(ledger));
      }),
    );
  });

  test("after any changes the sums equal those of a new ledger with the same reservations", () => {
    const step = fc.tuple(fc.nat(5), fc.constantFrom("admit", "drop", "dropRecord", "weigh"), reservation);
    fc.assert(
      fc.property(reservations(6), fc.array(step, { maxLength: 20 }), (given, steps) => {
        const ledger = Ledger.parse(ledgerOf(given).encode(3));
        expect(ledger.bytesAtMost).toBeGreaterThan(-1);
        for (const [index, kind, other] of steps) {
          const one = [...ledger.reservations()][index];
          if (kind === "admit") admitAll(ledger, other);
          else if (one === undefined) continue;
          else if (kind === "drop") ledger.drop(one);
          else if (kind === "weigh") ledger.setWeight(one, one.weight === 1 ? 0 : 1);
          else if (kind === "dropRecord") for (const operation of one.records.keys()) dropFrom(ledger, one, operation);
        }
        const fresh = ledgerOf([...ledger.reservations()]);
        expect(ledger.weight).toBe(fresh.weight);
        expect(reservationCount(ledger)).toBe(reservationCount(fresh));
        expect(ledger.bytesAtMost).toBe(fresh.bytesAtMost);
      }),
    );
  });

  test("a reservation that was replaced can't be removed", () => {
    const ledger = ledgerOf(fc.sample(reservation, { numRuns: 1, seed: 3 }));
    const [stale] = [...ledger.reservations()];
    if (stale === undefined) throw new Error("no sample");
    ledger.setWeight(stale, stale.weight === 1 ? 0 : 1);
    expect(() => ledger.drop(stale)).toThrow("does not hold");
  });

  test("a copy is independent", () => {
    fc.assert(
      fc.property(reservations(8), reservation, (given, other) => {
        const ledger = ledgerOf(given);
        const before = ledger.encode(4);
        const copy = ledger.clone();
        admitAll(copy, other);
        for (const one of [...copy.reservations()]) copy.drop(one);
        expect(ledger.encode(4)).toEqual(before);
      }),
    );
  });
});

describe("reading", () => {
  const cases: [string, Bucket[], { weight: number; size: number; unreadable?: number }][] = [
    ["upstream's plain bucket", [{ startTime: T1, podUID: "u" }], { weight: 1, size: 1 }],
    ["upstream's compacted bucket", [{ startTime: T1, endTime: T2, counter: 7 }], { weight: 7, size: 7 }],
    ["a compacted bucket without a counter", [{ startTime: T1, endTime: T2, counter: null }], { weight: 1, size: 1 }],
    ["neither UID nor end", [{ startTime: T1 }], { weight: 1, size: 1 }],
    ["an empty UID", [{ startTime: T1, podUID: "", counter: 3 }], { weight: 3, size: 3 }],
    ["a negative counter of a range", [{ startTime: T1, endTime: T2, counter: -5 }], { weight: 1, size: 1 }],
    ["a negative counter of a pod", [{ startTime: T1, podUID: "u", counter: -5 }], { weight: 1, size: 1 }],
    ["a large counter of a pod", [{ startTime: T1, podUID: "u", counter: 9 }], { weight: 1, size: 1 }],
    ["a null counter of a pod", [{ startTime: T1, podUID: "u", counter: null }], { weight: 1, size: 1 }],
    [
      "one pod twice",
      [
        { startTime: T1, podUID: "u" },
        { startTime: T2, podUID: "u" },
      ],
      { weight: 1, size: 1 },
    ],
    ["a pin", [{ startTime: T1, podUID: "u", counter: 0, operation: "EVICT", nonce: "a" }], { weight: 0, size: 1 }],
    [
      "an unreadable packed text",
      [{ startTime: T1, endTime: T2, counter: 4, packed: "9;x" }],
      { weight: 4, size: 4, unreadable: 1 },
    ],
  ];
  test.each(cases)("%s", (_, buckets, { weight, size, unreadable = 0 }) => {
    const ledger = Ledger.parse(buckets);
    expect({ weight: ledger.weight, size: ledger.size, unreadable: ledger.unreadableBuckets }).toEqual({
      weight,
      size,
      unreadable,
    });
  });

  test("an unreadable packed text is written back unchanged", () => {
    const bucket = { startTime: T1, endTime: T2, counter: 4, packed: "9;x" };
    expect(Ledger.parse([bucket]).encode(100)).toEqual([bucket]);
  });

  test("a packed bucket whose counter is larger than what it packs keeps the difference", () => {
    const ledger = ledgerOf(fc.sample(reservations(5), { numRuns: 1, seed: 1 })[0] ?? []);
    const [packed] = ledger.encode(0);
    const grown = Ledger.parse([{ ...packed, startTime: T1, counter: (packed?.counter ?? 0) + 3 }]);
    expect(grown.weight).toBe(ledger.weight + 3);
    expect(grown.unreadableBuckets).toBe(1);
  });

  test("upstream's bucket is paid, an evictions' pin that passed through upstream's hands is not", () => {
    const paidOf = (buckets: Bucket[]): boolean | undefined =>
      [...Ledger.parse(buckets).reservations()][0]?.records.get("EVICT")?.paid;
    const heavyPin: Bucket = { startTime: T1, podUID: "u", podName: "p", counter: 1, operation: "EVICT", nonce: "a" };
    expect(paidOf([{ startTime: T1, podUID: "u" }])).toBe(true);
    expect(paidOf([heavyPin])).toBe(false);
    expect(paidOf([onlyUpstreamFields(heavyPin)])).toBe(false);
    expect(Ledger.parse([heavyPin]).encode(100)).toEqual([heavyPin]);
  });
});

describe("packed reservations", () => {
  const admission = {
    operation: "DELETE",
    podResourceVersion: "7",
    podGeneration: undefined,
    paid: true,
    atMicros: 5,
  } as const;

  test("are found by UID and name, refreshed, and rolled back", () => {
    const ledger = Ledger.parse([]);
    ledger.admit("u1", "web-1", { ...admission, nonce: "a" }, 1);
    const read = Ledger.parse(ledger.encode(0));
    expect(read.encode(0)[0]?.packed).toBeDefined();
    expect(read.holdsNonce("u1", "DELETE", "a")).toBe(true);
    expect(read.holdsNonce("u2", "DELETE", "a")).toBe(false);
    read.admit("u1", "web-1", { ...admission, nonce: "b" }, 1);
    expect([read.weight, reservationCount(read)]).toEqual([1, 1]);
    read.removeNonce("u1", "DELETE", "a");
    read.removeNonce("u1", "DELETE", "b");
    expect([read.weight, reservationCount(read)]).toEqual([0, 0]);
  });

  test("of two pods whose hashes collide are both kept, and both use quota", () => {
    const record = { ...admission, nonces: ["x"], startMicros: 5, firstMicros: 5 };
    const colliding = { uid: undefined, uidHash: hashUid("u1"), podName: "web-2", weight: 1 as const };
    const packed = pack([{ ...colliding, records: new Map([["DELETE", record]]) }]);
    const ledger = Ledger.parse([{ startTime: T1, endTime: T1, counter: 1, packed }]);
    expect(ledger.get("u1", "web-1")).toBeUndefined();
    ledger.admit("u1", "web-1", { ...admission, nonce: "a" }, 1);
    expect([ledger.weight, reservationCount(ledger)]).toEqual([2, 2]);
    expect(Ledger.parse(ledger.encode(0)).weight).toBe(2);
    ledger.removeNonce("u1", "DELETE", "a");
    expect(ledger.weight).toBe(1);
  });

  test("2,500 reservations of ReplicaSets' pods stay under 100 KiB, 1,000 under 60", () => {
    const ledger = Ledger.parse([]);
    const digits = "bcdfghjklmnpqrstvwxz2456789";
    const sizes: number[] = [];
    for (let index = 0; index < 2500; index++) {
      let number = Math.imul(index, 7919) >>> 0;
      const suffix = Array.from({ length: 5 }, () => {
        const digit = digits.charAt(number % 27);
        number = Math.floor(number / 27) + index;
        return digit;
      }).join("");
      const uid = `7f9c8d7b-0000-4000-8000-${String(index).padStart(12, "0")}`;
      const nonce = Buffer.from(`${index}xyzabc`.slice(0, 6)).toString("base64url");
      const podResourceVersion = String(1_000_000 + ((index * 7919) % 200_000));
      const atMicros = 1_777_000_000_000_000 + Math.floor(index / 50) * 5_000;
      ledger.admit(uid, `web-7f9c8d7b6c-${suffix}`, { ...admission, podResourceVersion, nonce, atMicros }, 1);
      if (index === 999 || index === 2499) sizes.push(JSON.stringify(ledger.encode(100)).length);
    }
    expect(sizes[0]).toBeLessThan(60 * 1024);
    expect(sizes[1]).toBeLessThan(100 * 1024);
  });
});

describe("writing", () => {
  const admission = { operation: "DELETE", podResourceVersion: "7", podGeneration: undefined, paid: true } as const;
  const filled = (count: number): Ledger => {
    const ledger = Ledger.parse([]);
    for (let index = 0; index < count; index++) {
      ledger.admit(`u${index}`, `web-${index}`, { ...admission, nonce: `nonce-${index}`, atMicros: index }, 1);
    }
    return ledger;
  };

  test.each([
    [5, 10, 5, 0],
    [10, 10, 10, 0],
    [11, 10, 9, 2],
    [300, 1000, MAX_PLAIN_BUCKETS - 1, 300 - MAX_PLAIN_BUCKETS + 1],
    [3, 1, 0, 3],
    [3, 0, 0, 3],
  ])(
    "%i reservations at threshold %i: %i plain and %i packed, never more buckets than the threshold",
    (count, threshold, plain, packed) => {
      const buckets = filled(count).encode(threshold);
      expect(buckets.filter(({ podUID }) => podUID !== undefined)).toHaveLength(plain);
      expect(buckets.reduce((sum, bucket) => sum + (bucket.packed === undefined ? 0 : (bucket.counter ?? 0)), 0)).toBe(
        packed,
      );
      expect(buckets.length).toBeLessThanOrEqual(Math.max(1, threshold));
    },
  );

  test("the newest stay plain, and the packed bucket comes first with the times of its members", () => {
    const buckets = filled(5).encode(3);
    expect(buckets.map(({ podName }) => podName)).toEqual([undefined, "web-3", "web-4"]);
    expect(buckets[0]).toMatchObject({
      startTime: "1970-01-01T00:00:00.000000Z",
      endTime: "1970-01-01T00:00:00.000002Z",
      counter: 3,
    });
  });

  test("a plain record has upstream's fields, and no field that is not needed", () => {
    expect(filled(1).encode(100)).toEqual([
      {
        startTime: "1970-01-01T00:00:00.000000Z",
        podUID: "u0",
        podName: "web-0",
        podResourceVersion: "7",
        operation: "DELETE",
        nonce: "nonce-0",
        paid: true,
      },
    ]);
  });

  test("two records of one pod write its weight once", () => {
    const ledger = filled(1);
    ledger.admit("u0", "web-0", { ...admission, operation: "EVICT", nonce: "e", atMicros: 0 }, 1);
    expect(ledger.encode(100).map(({ operation, counter }) => [operation, counter])).toEqual([
      ["DELETE", undefined],
      ["EVICT", 0],
    ]);
    expect(Ledger.parse(ledger.encode(100)).weight).toBe(1);
  });

  test("a version that is no number does not let a stored version go down", () => {
    const ledger = Ledger.parse([]);
    for (const podResourceVersion of ["500", "x", "1"])
      ledger.admit("u", "p", { ...admission, podResourceVersion, nonce: podResourceVersion, atMicros: 1 }, 1);
    // Unknown: rule R2 does not judge the record.
    expect(ledger.get("u", "p")?.records.get("DELETE")?.podResourceVersion).toBeUndefined();
  });

  test("a refreshed record keeps its newest nonces, its first time, the larger version", () => {
    const ledger = Ledger.parse([]);
    for (let index = 1; index <= NONCES_KEPT + 2; index++) {
      const podResourceVersion = index === 3 ? "900" : "7";
      ledger.admit("u", "p", { ...admission, podResourceVersion, nonce: `n${index}`, atMicros: index }, 1);
    }
    const record = ledger.get("u", "p")?.records.get("DELETE");
    expect(record).toMatchObject({ podResourceVersion: "900", firstMicros: 1, startMicros: NONCES_KEPT + 2 });
    expect(record?.nonces).toEqual([EARLIER, ...Array.from({ length: NONCES_KEPT }, (_, index) => `n${index + 3}`)]);
    for (let index = 3; index <= NONCES_KEPT + 2; index++) ledger.removeNonce("u", "DELETE", `n${index}`);
    expect(ledger.get("u", "p")?.records.get("DELETE")?.nonces).toEqual([EARLIER]);
    expect(ledger.weight).toBe(1);
  });
});
