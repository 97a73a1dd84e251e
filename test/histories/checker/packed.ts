/** Reads the packed form of reservations, as docs/design.md#history-size has it. */

const OPERATIONS = ["DELETE", "EVICT", "UPDATE"];
const SUFFIX = "bcdfghjklmnpqrstvwxz2456789";

export interface StoredRecord {
  readonly nonces: readonly string[];
  readonly paid: boolean;
  /** Of the newest admission. */
  readonly admittedMs: number;
}

/** All records of one pod, by operation. */
export interface PodReservation {
  readonly weight: number;
  readonly records: ReadonlyMap<string, StoredRecord>;
}

class Bytes {
  readonly #bytes: Buffer;
  #next = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  take(count: number): Buffer {
    if (this.#next + count > this.#bytes.length) throw new Error("a packed history ends too early");
    this.#next += count;
    return this.#bytes.subarray(this.#next - count, this.#next);
  }

  byte(): number {
    return this.take(1).readUInt8(0);
  }

  unsigned(): number {
    let [value, factor, byte] = [0, 1, 128];
    while (byte >= 128) {
      byte = this.byte();
      value += (byte % 128) * factor;
      factor *= 128;
    }
    return value;
  }

  signed(): number {
    const value = this.unsigned();
    return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
  }

  text(): string {
    return this.take(this.unsigned()).toString("utf8");
  }

  /** Six bytes that are eight characters of base64url. */
  token(): string {
    return this.take(6).toString("base64url");
  }
}

/** Versions and times are differences to those of the record before. */
interface Before {
  version: number;
  micros: number;
}

function plainRecord(bytes: Bytes, before: Before, paid: boolean): StoredRecord {
  const nonces = [bytes.token()];
  before.version += bytes.signed();
  before.micros += bytes.signed();
  return { nonces, paid, admittedMs: before.micros / 1000 };
}

function fullRecord(bytes: Bytes, before: Before): StoredRecord {
  const flags = bytes.byte();
  if ((flags & 2) !== 0) before.version += bytes.signed();
  else if ((flags & 4) !== 0) bytes.text();
  if ((flags & 8) !== 0) bytes.signed();
  before.micros += bytes.signed();
  const admittedMs = before.micros / 1000;
  if ((flags & 16) !== 0) bytes.signed();
  const nonces = Array.from({ length: bytes.unsigned() }, () =>
    bytes.unsigned() === 0 ? bytes.token() : bytes.text(),
  );
  // Stands for earlier ones that are not kept.
  return { nonces: nonces.filter((nonce) => nonce !== "+"), paid: (flags & 1) !== 0, admittedMs };
}

function skipName(bytes: Bytes, isGenerated: boolean): void {
  bytes.unsigned();
  if (isGenerated) bytes.take(Math.ceil((5 * Math.log2(SUFFIX.length)) / 8));
  else bytes.text();
}

/** Reservations by the name of the UID; `nameOfUid` names a UID that is there as a whole. */
export function unpack(packed: string, nameOfUid: (uid: string) => string): ReadonlyMap<string, PodReservation> {
  const [, body] = /^1;([\w-]*)$/.exec(packed) ?? [];
  if (body === undefined) throw new Error("a packed history of an unknown form");
  const bytes = new Bytes(Buffer.from(body, "base64url"));
  for (let prefixes = bytes.unsigned(); prefixes > 0; prefixes--) bytes.text();
  const found = new Map<string, PodReservation>();
  const before = { version: 0, micros: 0 };
  for (let count = bytes.unsigned(); count > 0; count--) {
    const flags = bytes.byte();
    const uid = (flags & 16) !== 0 ? nameOfUid(bytes.text()) : bytes.take(8).toString("hex");
    if ((flags & 2) !== 0) skipName(bytes, (flags & 4) !== 0);
    const records = new Map<string, StoredRecord>();
    if ((flags & 8) !== 0) records.set(operation(flags >> 6), plainRecord(bytes, before, (flags & 32) !== 0));
    else {
      for (let more = bytes.unsigned(); more > 0; more--)
        records.set(operation(bytes.byte()), fullRecord(bytes, before));
    }
    found.set(uid, { weight: flags & 1, records });
  }
  return found;
}

function operation(index: number): string {
  const name = OPERATIONS[index];
  if (name === undefined) throw new Error("a packed history with an unknown operation");
  return name;
}
