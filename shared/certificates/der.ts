/**
 * The part of ASN.1 DER (ITU-T X.690) that certificates are made of: values in, bytes out, and one step of reading.
 */

const TAG_BOOLEAN = 0x01;
const TAG_INTEGER = 0x02;
const TAG_BIT_STRING = 0x03;
const TAG_OCTET_STRING = 0x04;
const TAG_OBJECT_IDENTIFIER = 0x06;
const TAG_UTF8_STRING = 0x0c;
const TAG_UTC_TIME = 0x17;
const TAG_GENERALIZED_TIME = 0x18;
const TAG_SEQUENCE = 0x30;
const TAG_SET = 0x31;

/** Tag, length and content of one value. `tag` is the whole identifier octet; tags above 30 are not needed here. */
export function der(tag: number, ...content: readonly Uint8Array[]): Buffer {
  const body = Buffer.concat(content);
  return Buffer.concat([Buffer.from([tag, ...lengthOctets(body.length)]), body]);
}

function lengthOctets(length: number): number[] {
  if (length < 0x80) return [length];
  const octets: number[] = [];
  for (let rest = length; rest > 0; rest = Math.floor(rest / 256)) octets.unshift(rest % 256);
  return [0x80 | octets.length, ...octets];
}

export const sequence = (...content: readonly Uint8Array[]): Buffer => der(TAG_SEQUENCE, ...content);

export const set = (...content: readonly Uint8Array[]): Buffer => der(TAG_SET, ...content);

/** [number] EXPLICIT, constructed. */
export const explicit = (number: number, content: Uint8Array): Buffer => der(0xa0 | number, content);

/** [number] IMPLICIT of a primitive type. */
export const implicit = (number: number, content: Uint8Array): Buffer => der(0x80 | number, content);

export const boolean = (value: boolean): Buffer => der(TAG_BOOLEAN, Buffer.from([value ? 0xff : 0]));

/** A non-negative INTEGER of big-endian octets, of any length. */
export function integer(octets: Uint8Array): Buffer {
  let start = 0;
  while (start < octets.length - 1 && octets[start] === 0) start++;
  const minimal = octets.subarray(start);
  const needsSignOctet = (minimal[0] ?? 0) >= 0x80;
  return der(TAG_INTEGER, needsSignOctet ? Buffer.from([0]) : Buffer.alloc(0), minimal);
}

export const octetString = (content: Uint8Array): Buffer => der(TAG_OCTET_STRING, content);

/** A BIT STRING whose last octet leaves `unusedBits` bits unused. */
export const bitString = (content: Uint8Array, unusedBits = 0): Buffer =>
  der(TAG_BIT_STRING, Buffer.from([unusedBits]), content);

export const utf8String = (text: string): Buffer => der(TAG_UTF8_STRING, Buffer.from(text, "utf8"));

/** An OBJECT IDENTIFIER from its dotted form. */
export function objectIdentifier(dotted: string): Buffer {
  const [first = 0, second = 0, ...rest] = dotted.split(".").map(Number);
  const octets = [first * 40 + second];
  for (const arc of rest) {
    const groups = [arc % 128];
    for (let left = Math.floor(arc / 128); left > 0; left = Math.floor(left / 128)) groups.unshift(128 + (left % 128));
    octets.push(...groups);
  }
  return der(TAG_OBJECT_IDENTIFIER, Buffer.from(octets));
}

/** A Time as RFC 5280 4.1.2.5 wants it: UTCTime through 2049, GeneralizedTime from 2050; whole seconds. */
export function time(unixMs: number): Buffer {
  const digits = new Date(unixMs).toISOString().replaceAll(/[-:T]|\.\d+/g, "");
  const year = Number(digits.slice(0, 4));
  return year < 2050
    ? der(TAG_UTC_TIME, Buffer.from(digits.slice(2), "ascii"))
    : der(TAG_GENERALIZED_TIME, Buffer.from(digits, "ascii"));
}

/** One value found by {@link readValue}: its tag, its content, and the whole of it with tag and length. */
export interface DerValue {
  readonly tag: number;
  readonly content: Buffer;
  readonly whole: Buffer;
}

/** The values that follow each other in `bytes`. Throws on a length that does not fit. */
export function readValues(bytes: Uint8Array): DerValue[] {
  const values: DerValue[] = [];
  for (let rest = Buffer.from(bytes); rest.length > 0; ) {
    const value = readValue(rest);
    values.push(value);
    rest = rest.subarray(value.whole.length);
  }
  return values;
}

function readValue(bytes: Buffer): DerValue {
  const tag = bytes[0];
  const short = bytes[1];
  if (tag === undefined || short === undefined) throw new RangeError("DER value ends early");
  const lengthSize = short < 0x80 ? 0 : short & 0x7f;
  if (lengthSize > 4) throw new RangeError("DER length is too large");
  let length = short < 0x80 ? short : 0;
  for (const octet of bytes.subarray(2, 2 + lengthSize)) length = length * 256 + octet;
  const start = 2 + lengthSize;
  if (start + length > bytes.length) throw new RangeError("DER value ends early");
  return { tag, content: bytes.subarray(start, start + length), whole: bytes.subarray(0, start + length) };
}
