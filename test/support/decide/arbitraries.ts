/** Random reservations, records and wire buckets for the property tests. */
import fc from "fast-check";
import { Ledger } from "../../../shared/decide/ledger/ledger.ts";
import { encodeBuckets, MAX_PLAIN_BUCKETS } from "../../../shared/decide/ledger/ledger-encode.ts";
import {
  boundNonces,
  EARLIER,
  type Reservation,
  type ReservationRecord,
} from "../../../shared/decide/ledger/reservation.ts";
import { type Bucket, OPERATIONS } from "../../../shared/schema/podprotector.ts";
import { formatMicros } from "../../../shared/schema/time.ts";

const token = fc.stringMatching(/^[A-Za-z0-9_-]{8}$/);
const nonce = fc.oneof({ weight: 8, arbitrary: token }, fc.stringMatching(/^[a-z]{1,12}$/));
const version = fc.oneof(
  { weight: 8, arbitrary: fc.nat(2_000_000).map(String) },
  fc.constantFrom("0", "999999999999999", "18446744073709551615", "not-a-number", ""),
);
const micros = fc.integer({ min: 0, max: 2 ** 52 - 1 });
const recentMicros = fc.integer({ min: 0, max: 60_000_000 }).map((offset) => 1_777_000_000_000_000 + offset);

export const record: fc.Arbitrary<ReservationRecord> = fc
  .record({
    podResourceVersion: fc.option(version, { nil: undefined }),
    podGeneration: fc.option(fc.nat(100), { nil: undefined, freq: 8 }),
    nonces: fc.uniqueArray(nonce, { minLength: 1, maxLength: 10 }),
    isCut: fc.boolean(),
    paid: fc.boolean(),
    startMicros: fc.oneof({ weight: 8, arbitrary: recentMicros }, micros),
    refreshedMicros: fc.oneof({ weight: 4, arbitrary: fc.constant(0) }, fc.nat(300_000_000)),
  })
  .map(({ nonces, isCut, refreshedMicros, ...rest }) => ({
    ...rest,
    nonces: boundNonces(isCut ? [EARLIER, ...nonces] : nonces),
    firstMicros: Math.max(0, rest.startMicros - refreshedMicros),
  }));

const podName = fc.oneof(
  { weight: 6, arbitrary: fc.stringMatching(/^(web|api)-[0-9a-f]{9}-[bcdfghjklmnpqrstvwxz2456789]{5}$/) },
  fc.stringMatching(/^db-[0-9]{1,3}$/),
  fc.stringMatching(/^[a-z0-9.-]{1,40}$/),
);

/** A reservation as it is known before it is packed. */
export const reservation: fc.Arbitrary<Reservation> = fc
  .record({
    uid: fc.uuid(),
    podName: fc.option(podName, { nil: undefined, freq: 10 }),
    weight: fc.constantFrom(0 as const, 1 as const),
    records: fc.uniqueArray(fc.tuple(fc.constantFrom(...OPERATIONS), record), {
      minLength: 1,
      maxLength: 3,
      selector: ([operation]) => operation,
    }),
  })
  .map(({ records, ...rest }) => ({ ...rest, uidHash: undefined, records: new Map(records) }));

export const reservations = (maxLength: number): fc.Arbitrary<Reservation[]> =>
  fc.uniqueArray(reservation, { maxLength, selector: ({ uid }) => uid });

/** A ledger of these reservations, read from the wire form of each. */
export function ledgerOf(given: readonly Reservation[]): Ledger {
  return Ledger.parse(given.flatMap((one) => encodeBuckets({ reservations: [one], ranges: [] }, MAX_PLAIN_BUCKETS)));
}

export function reservationCount(ledger: Ledger): number {
  return [...ledger.reservations()].length;
}

const time = fc.oneof(
  recentMicros.map(formatMicros),
  fc.constantFrom("2026-05-01T12:00:00Z", "9999-12-31T23:59:59Z", "nonsense"),
);

/** What the schema lets through, sensible or not. */
export const hostileBucket: fc.Arbitrary<Bucket> = fc.record(
  {
    startTime: time,
    endTime: fc.option(time),
    podUID: fc.constantFrom("", "u1", "u2", "u3"),
    podName: fc.constantFrom("", "p1", "p2", "p".repeat(300)),
    counter: fc.option(fc.integer({ min: -3, max: 5 })),
    podResourceVersion: version,
    operation: fc.constantFrom("DELETE", "EVICT", "UPDATE", "", "PATCH"),
    nonce: fc.constantFrom("", "+", "a", "a,b", "+,c", ",,", "+,+,d"),
    paid: fc.boolean(),
    firstTime: time,
    podGeneration: fc.constantFrom(0, 7, -1, 2 ** 53, 2 ** 63 - 1024, -(2 ** 63)),
    packed: fc.constantFrom("", "1;", "2;AAAA", "1;!!!!", "1;////", "1;AAEAAA"),
  },
  { requiredKeys: ["startTime"] },
);
