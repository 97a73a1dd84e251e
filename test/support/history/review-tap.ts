/**
 * A tap between the apiservers and the webhooks: passes every byte on, and tells each AdmissionReview with its answer.
 * Each connection has one of its own to the other side, so that what closes one closes the other.
 */
import { once } from "node:events";
import { connect as connectTcp } from "node:net";
import { connect, createServer, type Server, type TLSSocket } from "node:tls";
import { type HttpMessage, MessageReader } from "./message-reader.ts";

export interface TapOptions {
  readonly target: { readonly host: string; readonly port: number };
  readonly certificatePem: string;
  readonly privateKeyPem: string;
  /** Called with the first byte of a request; the result is called with both messages, or without a response. */
  readonly asked: () => (request: HttpMessage, response: HttpMessage | undefined) => void;
}

export class ReviewTap implements AsyncDisposable {
  readonly #options: TapOptions;
  readonly #server: Server;
  readonly #open = new Set<TLSSocket>();

  private constructor(options: TapOptions) {
    this.#options = options;
    this.#server = createServer({ cert: options.certificatePem, key: options.privateKeyPem }, (client) =>
      this.#serve(client),
    );
    this.#server.on("tlsClientError", () => {});
  }

  static async start(options: TapOptions): Promise<ReviewTap> {
    const tap = new ReviewTap(options);
    tap.#server.listen(0, "127.0.0.1");
    await once(tap.#server, "listening");
    return tap;
  }

  get port(): number {
    const address = this.#server.address();
    return typeof address === "object" && address !== null ? address.port : 0;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#open) socket.destroy();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }

  #serve(client: TLSSocket): void {
    const { target, asked } = this.#options;
    // Between two processes of this machine: nobody else has the port.
    const upstream = connect({ socket: connectTcp(target), rejectUnauthorized: false });
    let tell: ReturnType<TapOptions["asked"]> | undefined;
    let request: HttpMessage | undefined;
    const requests = new MessageReader((message) => {
      request = message;
    });
    const responses = new MessageReader((message) => {
      if (request !== undefined) tell?.(request, message);
      [tell, request] = [undefined, undefined];
    });
    client.on("data", (bytes: Buffer) => {
      tell ??= asked();
      requests.push(bytes);
      upstream.write(bytes);
    });
    upstream.on("data", (bytes: Buffer) => {
      responses.push(bytes);
      client.write(bytes);
    });
    const close = (): void => {
      if (!this.#open.delete(client)) return;
      if (request !== undefined) tell?.(request, undefined);
      client.destroy();
      upstream.destroy();
    };
    this.#open.add(client);
    for (const socket of [client, upstream]) {
      socket.on("error", close);
      socket.on("close", close);
    }
  }
}
