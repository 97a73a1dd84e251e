import type { Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import type { NetworkConditions } from "./proxy.ts";

/** Small, so that a low bandwidth cuts lines and characters at many places. */
const SLOW_PIECE_BYTES = 97;

/** Returns what to pass on of some bytes; nothing passes before that is known. */
type PipeChange = (bytes: Buffer) => Buffer | undefined | Promise<Buffer>;

/** One direction of a connection: reads from one socket and writes to the other, at the slower one's pace. */
export class Pipe {
  readonly #from: Socket;
  readonly #to: Socket;
  readonly #change: PipeChange;
  readonly #dropped: (bytes: Buffer) => void;
  readonly #closing = new AbortController();
  #held: PromiseWithResolvers<void> | undefined;
  conditions: NetworkConditions = {};

  /** `dropped` gets what was held when the connection was closed. */
  constructor(from: Socket, to: Socket, change: PipeChange, dropped: (bytes: Buffer) => void) {
    this.#from = from;
    this.#to = to;
    this.#change = change;
    this.#dropped = dropped;
    void this.#run();
  }

  /** While held, nothing is read and nothing passes. */
  hold(on: boolean): void {
    if (on) this.#held ??= Promise.withResolvers();
    else {
      this.#held?.resolve();
      this.#held = undefined;
    }
  }

  close(): void {
    this.#closing.abort();
    this.hold(false);
  }

  async #run(): Promise<void> {
    try {
      for await (const bytes of this.#from) {
        await this.#held?.promise;
        if (this.#closing.signal.aborted) {
          if (Buffer.isBuffer(bytes)) this.#dropped(bytes);
          return;
        }
        const changed = Buffer.isBuffer(bytes) ? await this.#change(bytes) : undefined;
        if (changed !== undefined) await this.#write(changed);
      }
      this.#to.end();
    } catch {
      // The sockets' own handlers close the connection.
    }
  }

  async #write(bytes: Buffer): Promise<void> {
    const { delayMs = 0, bytesPerMs } = this.conditions;
    const options = { signal: this.#closing.signal };
    if (delayMs > 0) await delay(delayMs, undefined, options);
    const piece = bytesPerMs === undefined ? bytes.length : SLOW_PIECE_BYTES;
    for (let start = 0; start < bytes.length; start += piece) {
      const part = bytes.subarray(start, start + piece);
      if (bytesPerMs !== undefined) await delay(Math.ceil(part.length / bytesPerMs), undefined, options);
      await new Promise<void>((resolve, reject) => {
        this.#to.write(part, (error) => (error ? reject(error) : resolve()));
      });
    }
  }
}
