/**
 * A TCP balancer instead of the webhook's Service: round robin over the replicas that accept a connection. Like
 * kube-proxy, it balances connections, and closes them with the replica.
 */
import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";

export interface Endpoint {
  readonly host: string;
  readonly port: number;
}

export class Balancer implements AsyncDisposable {
  readonly #server: Server;
  readonly #open = new Set<Socket>();
  /** May change while the balancer runs; new connections go to the present endpoints. */
  endpoints: readonly Endpoint[];
  /** Connections that an endpoint refused and the next one accepted. With kube-proxy, they would have failed. */
  refused = 0;
  #next = 0;

  private constructor(endpoints: readonly Endpoint[]) {
    this.endpoints = endpoints;
    this.#server = createServer((client) => this.#serve(client));
  }

  /** Resolves when the balancer accepts connections on `port`, or on a free port of `host`. */
  static async listen(endpoints: readonly Endpoint[], host = "127.0.0.1", port = 0): Promise<Balancer> {
    const balancer = new Balancer(endpoints);
    await once(balancer.#server.listen(port, host), "listening");
    return balancer;
  }

  get port(): number {
    const address = this.#server.address();
    return typeof address === "object" && address !== null ? address.port : 0;
  }

  async close(): Promise<void> {
    for (const socket of this.#open) socket.destroy();
    await this.#server[Symbol.asyncDispose]();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #serve(client: Socket): void {
    this.#track(client);
    client.setNoDelay(true);
    const { endpoints } = this;
    const first = this.#next++;
    const attempt = (tried: number): void => {
      const endpoint = endpoints[(first + tried) % Math.max(1, endpoints.length)];
      if (endpoint === undefined || tried >= endpoints.length || client.destroyed) {
        client.destroy();
        return;
      }
      const upstream = connect({ ...endpoint, noDelay: true });
      this.#track(upstream);
      let connected = false;
      upstream.once("connect", () => {
        connected = true;
        client.pipe(upstream).pipe(client);
        client.once("close", () => upstream.destroy());
        upstream.once("close", () => client.destroy());
      });
      upstream.on("error", () => {
        upstream.destroy();
        if (connected) client.destroy();
        else {
          this.refused += 1;
          attempt(tried + 1);
        }
      });
    };
    attempt(0);
  }

  #track(socket: Socket): void {
    this.#open.add(socket);
    socket.on("error", () => socket.destroy());
    socket.once("close", () => this.#open.delete(socket));
  }
}
