import { hasTooManyValues } from "../../runtime/json-values.ts";
import { MalformedResponse } from "../client/api-result.ts";
import { PART_BYTES } from "../client/transport.ts";

/** A watch line holds one object. etcd takes 1.5 MiB, and JSON can be several times longer than the stored form. */
export const MAX_LINE_BYTES = 32 * 1024 * 1024;

const NEWLINE = 0x0a;

/**
 * Splits a byte stream into lines, wherever its chunks end: inside a line, inside a UTF-8 character, or after many
 * lines. It decodes whole lines, so that a character is never cut. The rest of an unfinished line is dropped. Throws
 * {@link MalformedResponse} for a line that is too long, has too many values or is not UTF-8.
 */
export class LineSplitter {
  readonly #decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  readonly #maxLineBytes: number;
  readonly #trim: (line: Buffer) => Buffer;
  #parts: Uint8Array[] = [];
  #partBytes = 0;

  /** `trim` removes bytes of a line that no reader needs. */
  constructor(maxLineBytes = MAX_LINE_BYTES, trim = (line: Buffer): Buffer => line) {
    this.#maxLineBytes = maxLineBytes;
    this.#trim = trim;
  }

  /** Bytes of the line that has begun and not ended. */
  get pendingBytes(): number {
    return this.#partBytes;
  }

  /** Yields the lines that `chunk` completes, without their newline; empty lines are left out. */
  *push(chunk: Uint8Array): Generator<string, void, undefined> {
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE, start); end >= 0; end = chunk.indexOf(NEWLINE, start)) {
      const tail = chunk.subarray(start, end);
      start = end + 1;
      const line = this.#partBytes === 0 ? tail : this.#join(tail);
      this.#check(line.length);
      if (hasTooManyValues(line)) throw new MalformedResponse("a watch line has too many JSON values");
      if (line.length > 0) yield this.#decode(line);
    }
    if (start < chunk.length) this.#keep(chunk.subarray(start));
  }

  #keep(part: Uint8Array): void {
    this.#check(this.#partBytes + part.length + this.#parts.length * PART_BYTES);
    // A copy, which a Buffer's slice is not: the chunk may be a view of a much larger buffer, which would stay.
    this.#parts.push(new Uint8Array(part));
    this.#partBytes += part.length;
  }

  #join(tail: Uint8Array): Uint8Array {
    const line = Buffer.concat([...this.#parts, tail], this.#partBytes + tail.length);
    this.#parts = [];
    this.#partBytes = 0;
    return line;
  }

  #check(bytes: number): void {
    if (bytes <= this.#maxLineBytes) return;
    throw new MalformedResponse(`a watch line is longer than ${this.#maxLineBytes} bytes`);
  }

  #decode(line: Uint8Array): string {
    try {
      return this.#decoder.decode(this.#trim(Buffer.from(line.buffer, line.byteOffset, line.byteLength)));
    } catch (cause) {
      throw new MalformedResponse("a watch line is not UTF-8", { cause });
    }
  }
}
