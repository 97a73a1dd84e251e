/**
 * A growing byte string, and a reader that never runs past its end: the primitives of `pack.ts`. Short strings are
 * copied byte by byte, because a call of Buffer's methods for each of the thousands of strings in a history is several
 * times slower.
 */

/** The largest integer; reader and writer throw for a larger one. */
const MAX = Number.MAX_SAFE_INTEGER;

const BASE64URL = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const CODES = Uint8Array.from(BASE64URL, (character) => character.charCodeAt(0));
const DIGITS = new Uint8Array(128);
for (let digit = 0; digit < CODES.length; digit++) DIGITS[CODES[digit] ?? 0] = digit;

/** A token (`Randomness.token()`): 8 characters of base64url, which are 6 bytes. */
const TOKEN_CHARS = 8;
const TOKEN_BYTES = 6;
const TOKEN = /^[A-Za-z0-9_-]{8}$/;

export function isToken(text: string): boolean {
  return text.length === TOKEN_CHARS && TOKEN.test(text);
}

export class ByteWriter {
  #bytes: Buffer = Buffer.allocUnsafe(1024);
  #length = 0;

  /** One byte, 0 to 255. */
  byte(value: number): void {
    if (this.#length === this.#bytes.length) this.#reserve(1);
    this.#bytes[this.#length++] = value;
  }

  /** A non-negative integer, seven bits a byte, least significant first. */
  unsigned(value: number): void {
    if (!(value >= 0 && value <= MAX)) throw new RangeError(`${value} can't be packed`);
    let rest = value;
    while (rest >= 128) {
      this.byte(128 + (rest % 128));
      rest = Math.floor(rest / 128);
    }
    this.byte(rest);
  }

  /** An integer of either sign; small absolute values are short. */
  signed(value: number): void {
    this.unsigned(value >= 0 ? value * 2 : -value * 2 - 1);
  }

  /** The characters of a short Latin-1 string, without a length. */
  latin1(text: string): void {
    for (let index = 0; index < text.length; index++) this.byte(text.charCodeAt(index));
  }

  /** A string with its length before it. */
  text(text: string): void {
    const length = Buffer.byteLength(text);
    this.unsigned(length);
    this.#reserve(length);
    this.#length += this.#bytes.write(text, this.#length, "utf8");
  }

  /** A string for which {@link isToken} holds, without a length. */
  token(text: string): void {
    for (let index = 0; index < TOKEN_CHARS; index += 4) {
      const high = (digitAt(text, index) << 6) | digitAt(text, index + 1);
      const low = (digitAt(text, index + 2) << 6) | digitAt(text, index + 3);
      this.byte(high >>> 4);
      this.byte(((high & 15) << 4) | (low >>> 8));
      this.byte(low & 255);
    }
  }

  /** Appends the bytes of `other`. */
  append(other: ByteWriter): this {
    this.#reserve(other.#length);
    other.#bytes.copy(this.#bytes, this.#length, 0, other.#length);
    this.#length += other.#length;
    return this;
  }

  toBase64url(): string {
    return this.#bytes.toString("base64url", 0, this.#length);
  }

  #reserve(more: number): void {
    if (this.#length + more <= this.#bytes.length) return;
    const larger = Buffer.allocUnsafe(Math.max(this.#bytes.length * 2, this.#length + more));
    this.#bytes.copy(larger, 0, 0, this.#length);
    this.#bytes = larger;
  }
}

export class ByteReader {
  readonly #bytes: Buffer;
  #offset = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get atEnd(): boolean {
    return this.#offset >= this.#bytes.length;
  }

  get remaining(): number {
    return this.#bytes.length - this.#offset;
  }

  byte(): number {
    const value = this.#bytes[this.#offset];
    if (value === undefined) throw new RangeError("packed text ends too early");
    this.#offset++;
    return value;
  }

  unsigned(): number {
    let value = 0;
    let factor = 1;
    for (;;) {
      const byte = this.byte();
      value += (byte % 128) * factor;
      // NaN comes from endless zeros beyond the largest factor.
      if (!(value <= MAX)) throw new RangeError("packed number is too large");
      if (byte < 128) return value;
      factor *= 128;
    }
  }

  signed(): number {
    const value = this.unsigned();
    return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
  }

  /** Eight Latin-1 characters. */
  latin1Eight(): string {
    const at = this.#take(8);
    return String.fromCharCode(
      this.#at(at),
      this.#at(at + 1),
      this.#at(at + 2),
      this.#at(at + 3),
      this.#at(at + 4),
      this.#at(at + 5),
      this.#at(at + 6),
      this.#at(at + 7),
    );
  }

  text(): string {
    const length = this.unsigned();
    return this.#bytes.toString("utf8", this.#take(length), this.#offset);
  }

  token(): string {
    const at = this.#take(TOKEN_BYTES);
    const first = (this.#at(at) << 16) | (this.#at(at + 1) << 8) | this.#at(at + 2);
    const second = (this.#at(at + 3) << 16) | (this.#at(at + 4) << 8) | this.#at(at + 5);
    return String.fromCharCode(
      codeAt(first >>> 18),
      codeAt(first >>> 12),
      codeAt(first >>> 6),
      codeAt(first),
      codeAt(second >>> 18),
      codeAt(second >>> 12),
      codeAt(second >>> 6),
      codeAt(second),
    );
  }

  #at(index: number): number {
    return this.#bytes[index] ?? 0;
  }

  #take(length: number): number {
    if (length > this.remaining) throw new RangeError("packed text ends too early");
    const start = this.#offset;
    this.#offset += length;
    return start;
  }
}

function digitAt(text: string, index: number): number {
  return DIGITS[text.charCodeAt(index)] ?? 0;
}

function codeAt(sixBits: number): number {
  return CODES[sixBits & 63] ?? 0;
}
