import type { Server } from "node:https";
import type { Socket } from "node:net";
import { BODY_TICKS, HEADERS_TICKS } from "../limits.ts";

/** What is known of one connection between two looks at it. */
interface Caller {
  /** Bytes that had been read of it when its last request was complete. */
  restBytes: number;
  /** Requests whose headers are in and whose bodies are not: more than one while those that came in one piece are taken apart. */
  sending: number;
  /** Looks in a row that found the same request unfinished. */
  ticks: number;
  /** Looks in a row at which answers waited for the caller to take them. */
  unread: number;
}

const TIMED_OUT = "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n";

/**
 * Ends connections whose request is half sent and does not go on, or whose answers are not read (design 11). Node's own limits also end a new connection on which nothing
 * was sent yet: Go's transport, which apiservers use, opens some that it needs only later, and does not repeat a review that it
 * sends on one just as it is closed. Looks are counted, not time: a stall of this process is not laid at the caller's door.
 */
export class SlowCallers {
  readonly #callers = new Map<Socket, Caller>();

  /** Follows the connections of `server` from their handshakes on. */
  constructor(server: Server) {
    server.on("secureConnection", (socket) => {
      this.#callers.set(socket, { restBytes: 0, sending: 0, ticks: 0, unread: 0 });
      socket.once("close", () => this.#callers.delete(socket));
    });
  }

  /** The headers of a request are in. */
  began(socket: Socket): void {
    const caller = this.#callers.get(socket);
    if (caller === undefined) return;
    caller.sending++;
    caller.ticks = 0;
  }

  /** Once for each that {@link began}: it is in, or will not be read. What comes next begins another one. */
  complete(socket: Socket): void {
    const caller = this.#callers.get(socket);
    if (caller === undefined) return;
    // The next one's headers may be in already.
    if (--caller.sending > 0) return;
    caller.ticks = 0;
    caller.restBytes = socket.bytesRead;
  }

  /** To be called every {@link CHECK_CALLERS_EVERY_MS}. */
  look(): void {
    for (const [socket, caller] of this.#callers) {
      caller.unread = socket.writableLength === 0 ? 0 : caller.unread + 1;
      // Not in order: what is still to be written would be waited for.
      if (caller.unread > BODY_TICKS) socket.destroy();
      const isSending = caller.sending > 0;
      if (!isSending && socket.bytesRead === caller.restBytes) caller.ticks = 0;
      else if (++caller.ticks > (isSending ? BODY_TICKS : HEADERS_TICKS)) end(socket);
    }
  }
}

function end(socket: Socket): void {
  if (socket.writable) socket.write(TIMED_OUT);
  socket.destroySoon();
}
