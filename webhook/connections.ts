import type { Server } from "node:https";
import type { Socket } from "node:net";

/** What names a connection, before its handshake and after. */
function nameOf({ remoteAddress, remotePort, localAddress }: Socket): string | undefined {
  return remoteAddress === undefined ? undefined : `${remoteAddress} ${remotePort} ${localAddress}`;
}

interface Busy {
  readonly socket: Socket;
  reviews: number;
}

/**
 * Bounds the connections, those included that never come to a handshake: each takes memory, and Node keeps one on which nothing is sent
 * for two minutes. Where there is one too many, the oldest that has brought no review yet is ended for it, then the one that brought
 * its last review the longest ago: crowds of strangers don't keep apiservers out, nor end what they are about to use.
 */
export class Connections {
  readonly #max: number;
  readonly #strangers = new Map<string, Socket>();
  /** In the order of their last reviews. */
  readonly #idle = new Map<string, Socket>();
  readonly #busy = new Map<string, Busy>();

  constructor(server: Server, max: number) {
    this.#max = max;
    server.on("connection", (socket: Socket) => this.#opened(socket));
  }

  /** A review of this connection is taken; {@link answered} follows. */
  reviewing(socket: Socket): void {
    const name = nameOf(socket) ?? "";
    const busy = this.#busy.get(name);
    const waiting = this.#strangers.get(name) ?? this.#idle.get(name);
    if (busy !== undefined) busy.reviews++;
    else if (waiting !== undefined) {
      this.#forget(name);
      this.#busy.set(name, { socket: waiting, reviews: 1 });
    }
  }

  answered(socket: Socket): void {
    const name = nameOf(socket) ?? "";
    const busy = this.#busy.get(name);
    if (busy === undefined || --busy.reviews > 0) return;
    this.#busy.delete(name);
    this.#idle.set(name, busy.socket);
  }

  #opened(socket: Socket): void {
    const name = nameOf(socket);
    // Gone already.
    if (name === undefined) return;
    if (this.#strangers.size + this.#idle.size + this.#busy.size >= this.#max) {
      const [victim] = this.#strangers.size > 0 ? this.#strangers : this.#idle;
      if (victim === undefined) {
        socket.destroy();
        return;
      }
      this.#forget(victim[0]);
      victim[1].destroy();
    }
    this.#strangers.set(name, socket);
    socket.once("close", () => {
      const known = this.#strangers.get(name) ?? this.#idle.get(name) ?? this.#busy.get(name)?.socket;
      // Another one may have the same name by now.
      if (known === socket) this.#forget(name);
    });
  }

  #forget(name: string): void {
    this.#strangers.delete(name);
    this.#idle.delete(name);
    this.#busy.delete(name);
  }
}
