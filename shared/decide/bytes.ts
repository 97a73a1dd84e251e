/** A growing byte string and a reader that never runs past its end: the alphabet of `pack.ts`. */

/** Integers up to this size survive; larger ones make the reader or the writer fail. */
const MAX = Number.MAX_SAFE_INTEGER;

export class ByteWriter {
  #bytes: Buffer = Buffer.allocUnsafe(1024);
  #length = 0;

  /** One byte, 0 to 255. */
  byte(value: number): void {
    this.#reserve(1);
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

  /** An integer of either sign; small ones of either sign are short. */
  signed(value: number): void {
    this.unsigned(value >= 0 ? value * 2 : -value * 2 - 1);
  }

  /** The characters of a Latin-1 or ASCII string, without a length. */
  latin1(text: string): void {
    this.#reserve(text.length);
    this.#length += this.#bytes.write(text, this.#length, "latin1");
  }

  /** A string with its length before it. */
  text(text: string): void {
    const length = Buffer.byteLength(text);
    this.unsigned(length);
    this.#reserve(length);
    this.#length += this.#bytes.write(text, this.#length, "utf8");
  }

  /** The bytes of a base64url string without padding, whose length is a multiple of 4. */
  base64url(text: string): void {
    this.#reserve(text.length);
    this.#length += this.#bytes.write(text, this.#length, "base64url");
  }

  /** This, followed by what `other` holds. */
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
      if (value > MAX) throw new RangeError("packed number is too large");
      if (byte < 128) return value;
      factor *= 128;
    }
  }

  signed(): number {
    const value = this.unsigned();
    return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
  }

  latin1(length: number): string {
    return this.#bytes.toString("latin1", this.#take(length), this.#offset);
  }

  text(): string {
    return this.#bytes.toString("utf8", this.#take(this.unsigned()), this.#offset);
  }

  base64url(byteLength: number): string {
    return this.#bytes.toString("base64url", this.#take(byteLength), this.#offset);
  }

  #take(length: number): number {
    if (length > this.remaining) throw new RangeError("packed text ends too early");
    const start = this.#offset;
    this.#offset += length;
    return start;
  }
}
