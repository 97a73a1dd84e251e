/** The pages that are open: each reads one stream of server-sent events. */
import type { ServerResponse } from "node:http";

export const MAX_PAGES = 8;
/** A page that reads so slowly that this much waits for it is cut off. It connects again by itself. */
const MAX_WAITING_BYTES = 16_000_000;

export class EventStreams {
  readonly #open = new Set<ServerResponse>();

  get size(): number {
    return this.#open.size;
  }

  /** False when there are too many. */
  add(response: ServerResponse, begin: Iterable<string>): boolean {
    if (this.#open.size >= MAX_PAGES) return false;
    response.writeHead(200, { "content-type": "text/event-stream; charset=utf-8" });
    for (const message of begin) response.write(message);
    this.#open.add(response);
    response.on("close", () => this.#open.delete(response));
    return true;
  }

  send(message: string): void {
    for (const response of this.#open) {
      if (response.writableLength > MAX_WAITING_BYTES) response.destroy();
      else response.write(message);
    }
  }

  close(): void {
    for (const response of this.#open) response.destroy();
  }
}

/** One server-sent event. JSON has no line feed outside of strings, and none unescaped within. */
export function message(event: "hello" | "update", json: string): string {
  return `event: ${event}\ndata: ${json}\n\n`;
}
