import type { Server } from "node:https";
import type { Socket } from "node:net";

interface Connection {
  /** As it was accepted: that of the handshake comes later, and may never come. */
  readonly socket: Socket;
  reviews: number;
}

/** What a connection's socket is called by, before its handshake and after. */
function nameOf({ remoteAddress, remotePort, localAddress }: Socket): string | undefined {
  return remoteAddress === undefined ? undefined : `${remoteAddress} ${remotePort} ${localAddress}`;
}

/**
 * Bounds the connections, those included that never come to a handshake: each takes memory, and Node keeps one on which nothing is sent
 * for two minutes. Where there is one too many, the oldest that has brought no review yet is ended for it, then the one that brought
 * its last review the longest ago: crowds of strangers don't keep apiservers out, nor end what they are about to use.
 */
export class ConnectionLimiter {
  readonly #max: number;
  readonly #all = new Set<Connection>();
  /** Without a review so far, the oldest first. */
  readonly #strangers = new Set<Connection>();
  /** In the order of their last reviews. */
  readonly #idle = new Set<Connection>();
  /** Before their handshakes. */
  readonly #byName = new Map<string, Connection>();
  /** From their handshakes on. */
  readonly #secured = new WeakMap<Socket, Connection>();

  constructor(server: Server, max: number) {
    this.#max = max;
    server.on("connection", (socket: Socket) => this.#opened(socket));
    server.on("secureConnection", (socket) => this.#shaken(socket));
  }

  /** A review of this connection is taken; {@link answered} follows. */
  reviewing(socket: Socket): void {
    const connection = this.#secured.get(socket);
    if (connection === undefined) return;
    connection.reviews++;
    this.#strangers.delete(connection);
    this.#idle.delete(connection);
  }

  answered(socket: Socket): void {
    const connection = this.#secured.get(socket);
    if (connection !== undefined && --connection.reviews === 0 && this.#all.has(connection)) this.#idle.add(connection);
  }

  #opened(socket: Socket): void {
    const name = nameOf(socket);
    // Gone already.
    if (name === undefined) return;
    if (this.#all.size >= this.#max && !this.#makePlace()) {
      socket.destroy();
      return;
    }
    const connection = { socket, reviews: 0 };
    this.#all.add(connection);
    this.#strangers.add(connection);
    this.#byName.set(name, connection);
    socket.once("close", () => {
      this.#forget(connection);
      // Another one may have the same name by now.
      if (this.#byName.get(name) === connection) this.#byName.delete(name);
    });
  }

  #shaken(socket: Socket): void {
    const name = nameOf(socket) ?? "";
    const connection = this.#byName.get(name);
    if (connection === undefined) return;
    this.#byName.delete(name);
    this.#secured.set(socket, connection);
  }

  /** False when reviews of all of them are under way. */
  #makePlace(): boolean {
    const [victim] = this.#strangers.size > 0 ? this.#strangers : this.#idle;
    if (victim === undefined) return false;
    this.#forget(victim);
    victim.socket.destroy();
    return true;
  }

  #forget(connection: Connection): void {
    this.#all.delete(connection);
    this.#strangers.delete(connection);
    this.#idle.delete(connection);
  }
}
