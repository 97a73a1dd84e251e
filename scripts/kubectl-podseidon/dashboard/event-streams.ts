/** The open pages: each reads one stream of server-sent events. */
import type { ServerResponse } from "node:http";

export const MAX_PAGES = 8;
/** A page is disconnected when this much data waits for it. The page connects again by itself. */
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

/** One server-sent event. This JSON has no line feeds, because they are escaped within strings. */
export function message(event: "hello" | "update", json: string): string {
  return `event: ${event}\ndata: ${json}\n\n`;
}
