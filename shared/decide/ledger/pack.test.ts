import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { reservations } from "../../../test/support/decide/arbitraries.ts";
import { pack, unpack } from "./pack.ts";
import type { Reservation } from "./reservation.ts";
import { hashUid } from "./reservation.ts";

/** Packing may lose the readable UID where the name and a hash identify the pod. */
function hashed(reservation: Reservation): Reservation {
  const { uid, podName } = reservation;
  if (uid === undefined || podName === undefined) return reservation;
  return { ...reservation, uid: undefined, uidHash: hashUid(uid) };
}

describe("the packed form", () => {
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
    ["another version", "2;AAAA"],
    ["no body", "1;"],
    ["other characters", "1;{}"],
    ["a count beyond the text", "1;AP__"],
    ["a number beyond integers", "1;_____________________w8"],
    ["too long", `1;${"A".repeat(1 << 21)}`],
  ])("refuses %s", (_, text) => {
    expect(unpack(text)).toBeUndefined();
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
