/**
 * The packed form of reservations (docs/design.md#history-size): text in the `packed` field of one upstream bucket,
 * which only loses the readable UID. `1;` and base64url of a byte string: the name prefixes, then for each reservation
 * a byte of flags, 64 bits of the UID's hash, the name, and its records (`pack-record.ts`). The usual reservation, one
 * admission of a ReplicaSet's pod, takes about 23 bytes or 31 characters, so that 2,500 of them stay under 100 KiB.
 */
import { OPERATIONS, type Operation } from "../../schema/podprotector.ts";
import { ByteReader, ByteWriter } from "./bytes.ts";
import { PrefixTable, readName, readPrefixes, splitName, writeName } from "./pack-name.ts";
import {
  type Chain,
  isPlainRecord,
  newChain,
  readPlainRecord,
  readRecord,
  writePlainRecord,
  writeRecord,
} from "./pack-record.ts";
import { hashUid, mergeRecords, orderedRecords, type Reservation, type ReservationRecord } from "./reservation.ts";

const FORMAT = "1;";
/** No object in etcd is larger, so a longer text is not from this project. */
const MAX_PACKED_CHARS = 1 << 20;

const WEIGHT = 1;
const NAMED = 2;
const GENERATED_NAME = 4;
/** The records have the usual shape; operation and `paid` are in the flags. */
const PLAIN = 8;
/** The whole UID follows: without a name, a hash can't be resolved to a pod. */
const WHOLE_UID = 16;
const PAID = 32;
const OPERATION_SHIFT = 6;

/**
 * Packs in the given order; oldest first gives the shortest text. Throws for times beyond safe integers
 * (`shared/schema/time.ts` clamps them).
 */
export function pack(reservations: readonly Reservation[]): string {
  const table = new PrefixTable();
  const body = new ByteWriter();
  const chain = newChain();
  body.unsigned(reservations.length);
  for (const reservation of reservations) writeReservation(body, table, chain, reservation);
  const head = new ByteWriter();
  table.write(head);
  return `${FORMAT}${head.append(body).toBase64url()}`;
}

/**
 * The reservations that {@link pack} has packed, with hashes instead of UIDs; undefined for an unreadable text. Never
 * throws.
 */
export function unpack(packed: string): readonly Reservation[] | undefined {
  const known = unpacked.get(packed);
  if (known !== undefined) return known;
  const reservations = read(packed);
  if (reservations !== undefined) remember(packed, reservations);
  return reservations;
}

/**
 * Number of unpacked texts in the cache: a webhook reads its own writes again, and an aggregator reads the same object
 * at each event. Reservations are immutable, so they can be shared.
 */
const REMEMBERED = 8;
/** Longer texts are not cached, which bounds the memory to a few MB. */
const MAX_REMEMBERED_CHARS = 128 * 1024;
const unpacked = new Map<string, readonly Reservation[]>();

function remember(packed: string, reservations: readonly Reservation[]): void {
  if (packed.length > MAX_REMEMBERED_CHARS) return;
  const oldest = unpacked.keys().next();
  if (unpacked.size >= REMEMBERED && oldest.done !== true) unpacked.delete(oldest.value);
  unpacked.set(packed, reservations);
}

function read(packed: string): Reservation[] | undefined {
  if (!packed.startsWith(FORMAT) || packed.length > MAX_PACKED_CHARS) return undefined;
  const input = new ByteReader(Buffer.from(packed.slice(FORMAT.length), "base64url"));
  try {
    const prefixes = readPrefixes(input);
    const count = input.unsigned();
    if (count > input.remaining) return undefined;
    const chain = newChain();
    const reservations: Reservation[] = [];
    for (let index = 0; index < count; index++) reservations.push(readReservation(input, prefixes, chain));
    return input.atEnd ? reservations : undefined;
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

function writeReservation(out: ByteWriter, table: PrefixTable, chain: Chain, reservation: Reservation): void {
  const { uid, podName, weight } = reservation;
  const records = orderedRecords(reservation);
  const name = splitName(podName);
  const first = records[0];
  const plain = records.length === 1 && first !== undefined && isPlainRecord(first[1]) ? first : undefined;
  const isWhole = name === undefined && uid !== undefined;
  let flags = weight === 1 ? WEIGHT : 0;
  if (name !== undefined) flags |= name.isGenerated ? NAMED | GENERATED_NAME : NAMED;
  if (isWhole) flags |= WHOLE_UID;
  if (plain !== undefined) {
    flags |= PLAIN | (OPERATIONS.indexOf(plain[0]) << OPERATION_SHIFT);
    if (plain[1].paid) flags |= PAID;
  }
  out.byte(flags);
  if (isWhole) out.text(uid);
  else out.latin1(reservation.uidHash ?? hashUid(uid ?? ""));
  if (name !== undefined) writeName(out, table, name);
  if (plain !== undefined) writePlainRecord(out, chain, plain[1]);
  else {
    out.unsigned(records.length);
    for (const [operation, record] of records) {
      out.byte(OPERATIONS.indexOf(operation));
      writeRecord(out, chain, record);
    }
  }
}

function readReservation(input: ByteReader, prefixes: readonly string[], chain: Chain): Reservation {
  const flags = input.byte();
  const isWhole = (flags & WHOLE_UID) !== 0;
  const identity = isWhole ? input.text() : input.latin1Eight();
  const podName = (flags & NAMED) === 0 ? undefined : readName(input, prefixes, (flags & GENERATED_NAME) !== 0);
  const records = new Map<Operation, ReservationRecord>();
  if ((flags & PLAIN) !== 0) {
    records.set(operationAt(flags >> OPERATION_SHIFT), readPlainRecord(input, chain, (flags & PAID) !== 0));
  } else readRecords(input, chain, records);
  return {
    uid: isWhole ? identity : undefined,
    uidHash: isWhole ? undefined : identity,
    podName,
    weight: (flags & WEIGHT) === 0 ? 0 : 1,
    records,
  };
}

function readRecords(input: ByteReader, chain: Chain, records: Map<Operation, ReservationRecord>): void {
  const count = input.unsigned();
  if (count === 0 || count > OPERATIONS.length)
    throw new RangeError("packed reservation has a wrong number of records");
  for (let index = 0; index < count; index++) {
    const operation = operationAt(input.byte());
    const record = readRecord(input, chain);
    const before = records.get(operation);
    records.set(operation, before === undefined ? record : mergeRecords(before, record));
  }
}

function operationAt(index: number): Operation {
  const operation = OPERATIONS[index];
  if (operation === undefined) throw new RangeError("packed operation is unknown");
  return operation;
}
