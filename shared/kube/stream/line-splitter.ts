import { WatchFailure } from "./watch-failure.ts";

/** A watch line holds one object; etcd takes 1.5 MiB and JSON can be several times longer than what is stored. */
export const MAX_LINE_BYTES = 32 * 1024 * 1024;

const NEWLINE = 0x0a;

/**
 * Cuts a byte stream into lines, whatever the chunks are: in the middle of a line, of a UTF-8 character, many lines in one.
 * Bytes are decoded by the line, so that a cut character is whole again. A part of a line that is left when the stream ends is
 * no line. Throws a `corrupt` WatchFailure for a line that is too long or not UTF-8.
 */
export class LineSplitter {
  readonly #decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  readonly #maxLineBytes: number;
  readonly #trim: (line: Buffer) => Buffer;
  #parts: Uint8Array[] = [];
  #partBytes = 0;

  /** `trim` takes from a line's bytes what nobody will read. */
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
      if (line.length > 0) yield this.#decode(line);
    }
    if (start < chunk.length) this.#keep(chunk.subarray(start));
  }

  #keep(part: Uint8Array): void {
    this.#check(this.#partBytes + part.length);
    // A copy: the chunk may be a view of a much larger buffer that would live on with it.
    this.#parts.push(part.slice());
    this.#partBytes += part.length;
  }

  #join(tail: Uint8Array): Uint8Array {
    const line = Buffer.concat([...this.#parts, tail], this.#partBytes + tail.length);
    this.#parts = [];
    this.#partBytes = 0;
    return line;
  }

  #check(bytes: number): void {
    if (bytes > this.#maxLineBytes) {
      throw new WatchFailure("corrupt", `a watch line is longer than ${this.#maxLineBytes} bytes`);
    }
  }

  #decode(line: Uint8Array): string {
    try {
      return this.#decoder.decode(this.#trim(Buffer.from(line.buffer, line.byteOffset, line.byteLength)));
    } catch (cause) {
      throw new WatchFailure("corrupt", "a watch line is not UTF-8", { cause });
    }
  }
}
