import type { Server } from "node:https";
import type { Socket } from "node:net";
import { MAX_TIMEOUT_MS } from "./limits.ts";

export const CHECK_CALLERS_EVERY_MS = 2_000;
/** Number of checks that the headers of a request may take: 10 s. */
export const HEADERS_CHECKS = 5;
/** The same for a body, and for a caller to read its response: longer than any request may take. */
export const BODY_CHECKS = Math.ceil((MAX_TIMEOUT_MS + 5_000) / CHECK_CALLERS_EVERY_MS);

const TIMED_OUT = "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n";

interface Caller {
  /** Bytes that had been read when the last request was complete. */
  completeBytes: number;
  /** Requests whose headers are complete and whose bodies are not: several when they arrived in one piece. */
  arriving: number;
  /** Checks in a row that found the same request incomplete. */
  incompleteChecks: number;
  /** Checks in a row that found responses which the caller had not read. */
  unreadChecks: number;
}

/**
 * Closes connections whose request stays half sent, or whose responses are not read. Node's own limits would also close
 * a new connection without a request. Go's transport, which apiservers use, opens connections before it needs them, and
 * does not repeat a request that it sends while the server closes the connection. A limit is a number of checks instead
 * of a time, so that a stall of this process closes no connection.
 */
export class SlowCallers {
  readonly #callers = new Map<Socket, Caller>();

  /** Follows the connections of `server` from their handshakes on. */
  constructor(server: Server) {
    server.on("secureConnection", (socket) => {
      this.#callers.set(socket, { completeBytes: 0, arriving: 0, incompleteChecks: 0, unreadChecks: 0 });
      socket.once("close", () => this.#callers.delete(socket));
    });
  }

  requestBegan(socket: Socket): void {
    const caller = this.#callers.get(socket);
    if (caller === undefined) return;
    caller.arriving++;
    caller.incompleteChecks = 0;
  }

  /** Called once for each {@link requestBegan}: the request is complete, or its body will not be read. */
  requestComplete(socket: Socket): void {
    const caller = this.#callers.get(socket);
    // The headers of the next request may have arrived already.
    if (caller === undefined || --caller.arriving > 0) return;
    caller.incompleteChecks = 0;
    caller.completeBytes = socket.bytesRead;
  }

  /** To be called every {@link CHECK_CALLERS_EVERY_MS}. */
  check(): void {
    for (const [socket, caller] of this.#callers) {
      caller.unreadChecks = socket.writableLength === 0 ? 0 : caller.unreadChecks + 1;
      // An orderly end would wait for the caller to read the responses.
      if (caller.unreadChecks > BODY_CHECKS) socket.destroy();
      const isArriving = caller.arriving > 0;
      if (!isArriving && socket.bytesRead === caller.completeBytes) caller.incompleteChecks = 0;
      else if (++caller.incompleteChecks > (isArriving ? BODY_CHECKS : HEADERS_CHECKS)) end(socket);
    }
  }
}

function end(socket: Socket): void {
  if (socket.writable) socket.write(TIMED_OUT);
  socket.destroySoon();
}
