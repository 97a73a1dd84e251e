/** One record of a packed reservation (`pack.ts`). */
import { isComparableVersion } from "../../schema/resource-version.ts";
import { type ByteReader, type ByteWriter, isToken } from "./bytes.ts";
import { boundNonces, type ReservationRecord } from "./reservation.ts";

/** Version and time of the previous record: only the difference is written, because neighbours differ little. */
export interface Chain {
  version: number;
  micros: number;
}

export const newChain = (): Chain => ({ version: 0, micros: 0 });

/**
 * The schema accepts any 64-bit generation. Real generations are never clamped. Without the clamp, one record that
 * can't be packed would block the writes of all others.
 */
const MAX_GENERATION = 2 ** 52 - 1;

/** Versions of this many digits, and their differences, are safe integers. */
const MAX_NUMERIC_DIGITS = 15;

const PAID = 1;
const NUMERIC_VERSION = 2;
const TEXT_VERSION = 4;
const GENERATION = 8;
const REFRESHED = 16;

/** True for the usual record: one admission with a token as nonce and a numeric version. */
export function isPlainRecord(record: ReservationRecord): boolean {
  const [nonce] = record.nonces;
  return (
    record.nonces.length === 1 &&
    nonce !== undefined &&
    isToken(nonce) &&
    isNumeric(record.podResourceVersion) &&
    record.podGeneration === undefined &&
    record.firstMicros === record.startMicros
  );
}

export function writePlainRecord(out: ByteWriter, chain: Chain, record: ReservationRecord): void {
  out.token(record.nonces[0] ?? "");
  writeVersion(out, chain, Number(record.podResourceVersion));
  writeMicros(out, chain, record.startMicros);
}

export function readPlainRecord(input: ByteReader, chain: Chain, paid: boolean): ReservationRecord {
  const nonces = [input.token()];
  const podResourceVersion = readVersion(input, chain);
  const startMicros = readMicros(input, chain);
  return { podResourceVersion, podGeneration: undefined, nonces, paid, startMicros, firstMicros: startMicros };
}

export function writeRecord(out: ByteWriter, chain: Chain, record: ReservationRecord): void {
  const { podResourceVersion: version, podGeneration, nonces, startMicros, firstMicros } = record;
  const isNumber = isNumeric(version);
  let flags = record.paid ? PAID : 0;
  if (version !== undefined) flags |= isNumber ? NUMERIC_VERSION : TEXT_VERSION;
  if (podGeneration !== undefined) flags |= GENERATION;
  if (firstMicros !== startMicros) flags |= REFRESHED;
  out.byte(flags);
  if (isNumber) writeVersion(out, chain, Number(version));
  else if (version !== undefined) out.text(version);
  if (podGeneration !== undefined) out.signed(Math.max(-MAX_GENERATION, Math.min(podGeneration, MAX_GENERATION)));
  writeMicros(out, chain, startMicros);
  if (firstMicros !== startMicros) out.signed(firstMicros - startMicros);
  out.unsigned(nonces.length);
  for (const nonce of nonces) writeNonce(out, nonce);
}

export function readRecord(input: ByteReader, chain: Chain): ReservationRecord {
  const flags = input.byte();
  let podResourceVersion: string | undefined;
  if ((flags & NUMERIC_VERSION) !== 0) podResourceVersion = readVersion(input, chain);
  else if ((flags & TEXT_VERSION) !== 0) podResourceVersion = input.text();
  const podGeneration = (flags & GENERATION) === 0 ? undefined : input.signed();
  const startMicros = readMicros(input, chain);
  const firstMicros = (flags & REFRESHED) === 0 ? startMicros : inRange(startMicros + input.signed());
  const count = input.unsigned();
  if (count === 0 || count > input.remaining) throw new RangeError("packed record has a wrong number of nonces");
  const nonces: string[] = [];
  for (let index = 0; index < count; index++) nonces.push(readNonce(input));
  return {
    podResourceVersion,
    podGeneration,
    nonces: boundNonces(nonces),
    paid: (flags & PAID) !== 0,
    startMicros,
    firstMicros,
  };
}

/** A token is a 0 and its six bytes; any other text is a 1, its length and its bytes. */
function writeNonce(out: ByteWriter, nonce: string): void {
  if (isToken(nonce)) {
    out.unsigned(0);
    out.token(nonce);
  } else {
    out.unsigned(1);
    out.text(nonce);
  }
}

function readNonce(input: ByteReader): string {
  return input.unsigned() === 0 ? input.token() : input.text();
}

function isNumeric(version: string | undefined): boolean {
  return isComparableVersion(version) && version.length <= MAX_NUMERIC_DIGITS;
}

function writeVersion(out: ByteWriter, chain: Chain, version: number): void {
  out.signed(version - chain.version);
  chain.version = version;
}

function readVersion(input: ByteReader, chain: Chain): string {
  chain.version = inRange(chain.version + input.signed());
  return String(chain.version);
}

function writeMicros(out: ByteWriter, chain: Chain, micros: number): void {
  out.signed(micros - chain.micros);
  chain.micros = micros;
}

function readMicros(input: ByteReader, chain: Chain): number {
  chain.micros = inRange(chain.micros + input.signed());
  return chain.micros;
}

function inRange(value: number): number {
  if (value < 0 || value >= 2 ** 52) throw new RangeError("packed number is out of range");
  return value;
}
