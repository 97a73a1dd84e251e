/** States that wait for their turn, each with its number, in pieces that threads pass on. */

const PIECE_BYTES = 1 << 18;
const HEAD_BYTES = 6;

/** Texts of one byte for each character. */
export interface Piece {
  readonly memory: SharedArrayBuffer;
  readonly bytes: number;
}

export class PieceWriter {
  readonly #pieces: Piece[] = [];
  #buffer = Buffer.from(new SharedArrayBuffer(PIECE_BYTES));
  #used = 0;

  push(text: string, state: number): void {
    if (this.#used + HEAD_BYTES + text.length > PIECE_BYTES) this.#flush();
    this.#buffer.writeUInt16LE(text.length, this.#used);
    this.#buffer.writeUInt32LE(state, this.#used + 2);
    this.#buffer.write(text, this.#used + HEAD_BYTES, "latin1");
    this.#used += HEAD_BYTES + text.length;
  }

  pieces(): readonly Piece[] {
    this.#flush();
    return this.#pieces;
  }

  #flush(): void {
    const { buffer } = this.#buffer;
    if (this.#used === 0 || !(buffer instanceof SharedArrayBuffer)) return;
    this.#pieces.push({ memory: buffer, bytes: this.#used });
    this.#buffer = Buffer.from(new SharedArrayBuffer(PIECE_BYTES));
    this.#used = 0;
  }
}

export function* readPiece({ memory, bytes }: Piece): IterableIterator<readonly [text: string, state: number]> {
  const buffer = Buffer.from(memory);
  for (let at = 0; at < bytes; ) {
    const length = buffer.readUInt16LE(at);
    const from = at + HEAD_BYTES;
    yield [buffer.toString("latin1", from, from + length), buffer.readUInt32LE(at + 2)];
    at = from + length;
  }
}
