import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { reservations } from "../../../test/support/decide/arbitraries.ts";
import { pack, unpack } from "./pack.ts";
import { hashUid, type Reservation, type ReservationRecord, type Weight } from "./reservation.ts";

/** Packing may lose the readable UID where the name and a hash identify the pod. */
function hashed(reservation: Reservation): Reservation {
  const { uid, podName } = reservation;
  if (uid === undefined || podName === undefined) return reservation;
  return { ...reservation, uid: undefined, uidHash: hashUid(uid) };
}

const AT = 1_795_750_000_000_000;

/** Reservations of every shape: generated and other names, none; pins; each kind of nonce, version and time. */
function everyShape(): readonly Reservation[] {
  const record = (changes: Partial<ReservationRecord> = {}): ReservationRecord => ({
    podResourceVersion: "1041",
    podGeneration: undefined,
    nonces: ["j1N8qYzd"],
    paid: true,
    startMicros: AT,
    firstMicros: changes.startMicros ?? AT,
    ...changes,
  });
  const evicted = record({ podResourceVersion: "1040", nonces: ["aaaaaaaa"], startMicros: AT + 250_000 });
  const changed = record({ podGeneration: 7, nonces: ["+", "bbbbbbbb", "short"], firstMicros: AT - 10_000_000 });
  const unversioned = record({ podResourceVersion: undefined, startMicros: AT + 1_000_000 });
  const uid = (number: number): string => `00000000-0000-4000-8000-00000000000${number}`;
  const one = (number: number, podName: string | undefined, weight: Weight, records: Reservation["records"]) => {
    return { uid: uid(number), uidHash: undefined, podName, weight, records };
  };
  return [
    one(1, "web-6c5f9d7b8-x2k4j", 1, new Map([["DELETE", record()]])),
    one(2, "web-6c5f9d7b8-9zqhm", 1, new Map([["EVICT", evicted]])),
    one(
      3,
      "db-0",
      0,
      new Map([
        ["EVICT", record({ paid: false })],
        ["UPDATE", changed],
      ]),
    ),
    one(
      4,
      undefined,
      1,
      new Map([
        ["DELETE", record({ podResourceVersion: "18446744073709551615" })],
        ["EVICT", unversioned],
      ]),
    ),
  ];
}

/** As the version of 2026-11-21 wrote {@link everyShape}. Another form needs another number before the semicolon. */
const RECORDED =
  "1;Ag53ZWItNmM1ZjlkN2I4LQNkYi0ELxHllPSBlYwQAJgO2o9TfKmM3aIQgPDXjbTOsAZv55rNl6yICGYA2K4PaaaaaaaaAaDCHgKZMiS0_oWZDQEB" +
  "MAIBAgKfwh4BAI9TfKmM3QIbAA4A_9nECQMBASsAbbbbbbbbAQVzaG9ydBEkMDAwMDAwMDAtMDAwMC00MDAwLTgwMDAtMDAwMDAwMDAwMDA0AgAF" +
  "FDE4NDQ2NzQ0MDczNzA5NTUxNjE1AAEAj1N8qYzdAQGAiXoBAI9TfKmM3Q";

/** No prefix, and one pod of weight 1 with its whole UID; the number of its records comes next. */
const ONE_POD = [0, 1, 17, 1, 117] as const;
/** Operation, flags, time, one nonce that is a text. */
const RECORD = [0, 0, 0, 1, 1, 1, 110] as const;
const packedBytes = (...bytes: readonly number[]): string => `1;${Buffer.from(bytes).toString("base64url")}`;

describe("the packed form", () => {
  test("is the one that earlier versions read and wrote: they work beside this one during an upgrade", () => {
    expect(pack(everyShape())).toBe(RECORDED);
    expect(unpack(RECORDED)).toEqual(everyShape().map(hashed));
  });

  test("gives back every reservation exactly", () => {
    fc.assert(
      fc.property(reservations(40), (given) => {
        expect(unpack(pack(given))).toEqual(given.map(hashed));
      }),
    );
  });

  test("packs the same again after it was unpacked", () => {
    fc.assert(
      fc.property(reservations(20), (given) => {
        const text = pack(given);
        expect(pack(unpack(text) ?? [])).toBe(text);
      }),
    );
  });

  test.each([
    ["nothing", ""],
    ["another version", `2;${RECORDED.slice(2)}`],
    ["more than there should be", `${RECORDED}AAAA`],
    ["a reservation without records", packedBytes(...ONE_POD, 0)],
    ["more records than there are operations", packedBytes(...ONE_POD, 4, ...RECORD, ...RECORD, ...RECORD, ...RECORD)],
    ["an unknown operation", packedBytes(...ONE_POD, 1, 3, ...RECORD.slice(1))],
    ["a record without nonces", packedBytes(...ONE_POD, 1, 0, 0, 0, 0)],
    ["a time before 1970", packedBytes(...ONE_POD, 1, 0, 0, 1, ...RECORD.slice(3))],
    ["no body", "1;"],
    ["other characters", "1;{}"],
    ["a count beyond the text", "1;AP__"],
    ["a number beyond integers", "1;_____________________w8"],
    ["too long", `1;${"A".repeat(1 << 21)}`],
  ])("refuses %s", (_, text) => {
    expect(unpack(text)).toBeUndefined();
    expect(unpack(packedBytes(...ONE_POD, 1, ...RECORD))).toMatchObject([{ uid: "u", weight: 1 }]);
  });

  test("refuses every shortened text, and never throws on a changed one", () => {
    fc.assert(
      fc.property(reservations(6), fc.nat(), fc.nat(63), (given, at, digit) => {
        fc.pre(given.length > 0);
        const text = pack(given);
        const position = 2 + (at % (text.length - 2));
        expect(unpack(text.slice(0, position))).toBeUndefined();
        const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        unpack(text.slice(0, position) + alphabet.charAt(digit) + text.slice(position + 1));
      }),
    );
  });

  test("never throws on any text", () => {
    fc.assert(fc.property(fc.base64String({ maxLength: 400 }), (body) => void unpack(`1;${body}`)));
  });
});
