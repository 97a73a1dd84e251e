import type { Server } from "node:https";
import type { Socket } from "node:net";

interface Connection {
  /** The socket as it was accepted. The TLS socket comes with the handshake, or never. */
  readonly socket: Socket;
  secured?: Socket;
  requests: number;
  isOutdated: boolean;
  isDismissed: boolean;
}

/** How long a client may take to close its connection. */
const DISMISSAL_MS = 1_000;

/** Identifies a connection before and after its handshake, when Node hands out two different sockets. */
function addressOf({ remoteAddress, remotePort, localAddress }: Socket): string | undefined {
  return remoteAddress === undefined ? undefined : `${remoteAddress} ${remotePort} ${localAddress}`;
}

/**
 * Bounds the connections, including those without a handshake: each takes memory, and Node keeps a silent one for two
 * minutes. Beyond the bound, a new connection replaces the oldest one that has sent no request yet, then the longest
 * idle one. So clients that send nothing neither keep apiservers out nor close a connection that an apiserver is about
 * to use.
 */
export class ConnectionLimiter {
  readonly #max: number;
  readonly #all = new Set<Connection>();
  /** Connections that have sent no request, oldest first. */
  readonly #unused = new Set<Connection>();
  /** Connections without a request in flight, in the order of their last response. */
  readonly #idle = new Set<Connection>();
  readonly #byAddress = new Map<string, Connection>();
  readonly #secured = new WeakMap<Socket, Connection>();

  constructor(server: Server, max: number) {
    this.#max = max;
    server.on("connection", (socket: Socket) => this.#opened(socket));
    server.on("secureConnection", (socket) => this.#secure(socket));
  }

  /** A request of this connection was accepted; {@link requestEnded} follows. */
  requestStarted(socket: Socket): void {
    const connection = this.#secured.get(socket);
    if (connection === undefined) return;
    connection.requests++;
    this.#unused.delete(connection);
    this.#idle.delete(connection);
  }

  requestEnded(socket: Socket): void {
    const connection = this.#secured.get(socket);
    if (connection !== undefined && --connection.requests === 0 && this.#all.has(connection))
      this.#idle.add(connection);
  }

  /** Marks all present connections, also those whose handshake goes on by what was known when it began. */
  outdate(): void {
    for (const connection of this.#all) connection.isOutdated = true;
  }

  isOutdated(socket: Socket): boolean {
    return this.#secured.get(socket)?.isOutdated !== false;
  }

  /** A request of this connection is in flight. */
  isBusy(socket: Socket): boolean {
    return (this.#secured.get(socket)?.requests ?? 0) > 0;
  }

  /** Nothing that comes on this connection is answered any more. */
  isDismissed(socket: Socket): boolean {
    return this.#secured.get(socket)?.isDismissed === true;
  }

  /**
   * Sends `words` as the end of each connection without a request in flight. A request that crosses them has them for
   * its response. Resolves when these connections are closed: by their clients, or a second after the last byte.
   */
  async dismissIdle(words: string): Promise<void> {
    const closed: Promise<void>[] = [];
    for (const connection of this.#all) {
      const { secured, requests } = connection;
      if (secured === undefined || secured.destroyed || requests > 0) continue;
      connection.isDismissed = true;
      closed.push(new Promise((resolve) => secured.once("close", () => resolve())));
      secured.end(words);
      secured.setTimeout(DISMISSAL_MS, () => secured.destroy());
    }
    await Promise.all(closed);
  }

  /** `closeAllConnections` of Node leaves out those without a handshake, for which it waits two minutes. */
  closeAll(): void {
    for (const { socket } of this.#all) socket.destroy();
  }

  #opened(socket: Socket): void {
    const address = addressOf(socket);
    // The client has disconnected already.
    if (address === undefined) return;
    if (this.#all.size >= this.#max && !this.#evict()) {
      socket.destroy();
      return;
    }
    const connection = { socket, requests: 0, isOutdated: false, isDismissed: false };
    this.#all.add(connection);
    this.#unused.add(connection);
    this.#byAddress.set(address, connection);
    socket.once("close", () => {
      this.#forget(connection);
      // A later connection may have the same address.
      if (this.#byAddress.get(address) === connection) this.#byAddress.delete(address);
    });
  }

  #secure(socket: Socket): void {
    const address = addressOf(socket) ?? "";
    const connection = this.#byAddress.get(address);
    if (connection === undefined) return;
    this.#byAddress.delete(address);
    connection.secured = socket;
    this.#secured.set(socket, connection);
  }

  /** False when every connection has a request in flight. */
  #evict(): boolean {
    const [victim] = this.#unused.size > 0 ? this.#unused : this.#idle;
    if (victim === undefined) return false;
    this.#forget(victim);
    victim.socket.destroy();
    return true;
  }

  #forget(connection: Connection): void {
    this.#all.delete(connection);
    this.#unused.delete(connection);
    this.#idle.delete(connection);
  }
}
