/** The checker's own reading of packed records finds what the product has packed. */
import fc from "fast-check";
import { expect, test } from "vitest";
import { pack } from "../../../shared/decide/ledger/pack.ts";
import { reservations } from "../../support/decide/arbitraries.ts";
import { unpack } from "./packed.ts";
import { nameOfUid } from "./pods.ts";

test("every packed reservation is read, with its weight, its operations, nonces and times", () => {
  fc.assert(
    fc.property(reservations(30), (given) => {
      const expected = given.map(({ uid = "", weight, records }) => {
        const read = [...records].map(([operation, { nonces, paid, startMicros }]) => {
          const known = nonces.filter((nonce) => nonce !== "+");
          return [operation, { nonces: known, paid, admittedMs: startMicros / 1000 }] as const;
        });
        return [nameOfUid(uid), { weight, records: new Map(read) }] as const;
      });
      expect(unpack(pack(given), nameOfUid)).toEqual(new Map(expected));
    }),
  );
});

test.each(["", "2;AAAA", "1;AQ"])("an unknown or cut text is no history: %j", (text) => {
  expect(() => unpack(text, nameOfUid)).toThrow();
});
