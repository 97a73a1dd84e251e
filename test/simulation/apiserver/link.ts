/**
 * The network between one client and one API server model, as the `Transport` port of the shipping code: delays,
 * partitions in each direction, lost responses, cut streams. A request whose connection breaks after it was sent may
 * have taken effect.
 */

import {
  type ApiRequest,
  type ApiResponse,
  type ApiStream,
  type Transport,
  TransportError,
} from "../../../shared/kube/client/transport.ts";
import { type Ports, sleep } from "../../../shared/runtime/clock.ts";
import { jsonOf } from "./objects.ts";
import { requestBody } from "./patches.ts";
import { parsePath } from "./resources.ts";
import type { ApiServer } from "./server.ts";

export interface LinkFaults {
  /** One-way delay of each message. */
  delayMs(): number;
  /** Nothing from the client arrives at the server. */
  requestsLost(): boolean;
  /** Nothing from the server arrives at the client. */
  responsesLost(): boolean;
  /** Only this message is lost. */
  oneLost(): boolean;
  /** The server's process does not run, so connections are refused at once. */
  refused(): boolean;
}

export class SimulatedLink implements Transport {
  readonly server: ApiServer;
  readonly #ports: Ports;
  readonly #faults: LinkFaults;
  readonly user: string;
  /** The client's process. Messages wait while it is stopped, and are lost after its death. */
  readonly #process: Ports;
  readonly #streams = new Set<{ fail(): void }>();
  readonly #aborts = new Set<() => void>();
  #closed = false;

  constructor(server: ApiServer, ports: Ports, faults: LinkFaults, user: string, process: Ports = ports) {
    this.#process = process;
    this.server = server;
    this.#ports = ports;
    this.#faults = faults;
    this.user = user;
  }

  /** Cuts every open stream, as a reset of the connections does. */
  cut(): void {
    for (const stream of [...this.#streams]) stream.fail();
  }

  close(): void {
    this.#closed = true;
    for (const abort of [...this.#aborts]) abort();
    this.cut();
  }

  request(request: ApiRequest): Promise<ApiResponse> {
    return this.#bounded(request, async (progress) => {
      await this.#arrive(progress);
      if (this.#faults.oneLost()) await new Promise(() => {});
      const response = await this.server.handle({
        method: request.method,
        path: request.path,
        body: request.body === undefined ? undefined : requestBody(JSON.parse(request.body)),
        contentType: request.contentType ?? "application/json",
        user: this.user,
      });
      const answeredMs = this.#ports.clock.monotonicMs();
      const body = jsonOf(response.body);
      await sleep(this.#process, this.#faults.delayMs());
      if (this.#faults.responsesLost() || this.#faults.refused() || this.#faults.oneLost()) await new Promise(() => {});
      this.#noteRead(request, answeredMs);
      return { status: response.status, headers: response.headers, body };
    });
  }

  #noteRead({ method, path }: ApiRequest, answeredMs: number): void {
    const target = this.user === "webhook" && method === "GET" ? parsePath(path) : undefined;
    if (target?.name === undefined || target.resource.plural !== "pods") return;
    const arrivedMs = this.#ports.clock.monotonicMs();
    this.server.podReads.set(`pods/${target.namespace}/${target.name}`, { answeredMs, arrivedMs });
  }

  stream(request: ApiRequest): Promise<ApiStream> {
    return this.#bounded(request, async (progress) => {
      await this.#arrive(progress);
      if (this.#faults.responsesLost()) await new Promise(() => {});
      const target = parsePath(request.path);
      if (target === undefined || !this.server.isServed(target))
        return { status: 404, headers: {}, chunks: empty(), close: () => {} };
      return this.#open(request, target);
    });
  }

  #open(request: ApiRequest, target: NonNullable<ReturnType<typeof parsePath>>): ApiStream {
    const queue: Uint8Array[] = [];
    let wake: (() => void) | undefined;
    let state: "open" | "ended" | "failed" | "timeout" = "open";
    let idle = this.#process.timers.after(request.timeoutMs, () => settle("timeout"));
    const settle = (next: typeof state): void => {
      if (state !== "open") return;
      state = next;
      idle.cancel();
      this.#streams.delete(handle);
      end();
      wake?.();
    };
    const handle = { fail: () => settle("failed") };
    this.#streams.add(handle);
    let arrivesMs = this.#ports.clock.monotonicMs();
    // A connection delivers in order. After a lost message nothing arrives until the client gives up.
    let isBroken = false;
    const deliver = (action: () => void): void => {
      isBroken ||= this.#faults.responsesLost();
      if (isBroken) return;
      arrivesMs = Math.max(arrivesMs, this.#ports.clock.monotonicMs() + this.#faults.delayMs());
      this.#process.timers.after(arrivesMs - this.#ports.clock.monotonicMs(), action);
    };
    let end = (): void => {};
    end = this.server.watch(target, {
      line: (bytes) =>
        deliver(() => {
          if (state !== "open") return;
          idle.cancel();
          idle = this.#process.timers.after(request.timeoutMs, () => settle("timeout"));
          queue.push(bytes);
          wake?.();
        }),
      end: () => deliver(() => settle("ended")),
    });
    request.signal?.addEventListener("abort", () => settle("ended"), { once: true });
    async function* chunks(): AsyncGenerator<Uint8Array> {
      for (;;) {
        const next = queue.shift();
        if (next !== undefined) yield next;
        else if (state === "failed") throw new TransportError("reset", true, "the connection was reset");
        else if (state === "timeout") throw new TransportError("timeout", true, "no data within the idle deadline");
        else if (state === "ended") return;
        else
          await new Promise<void>((resolve) => {
            wake = resolve;
          });
      }
    }
    const headers = { "content-type": "application/json" };
    return { status: 200, headers, chunks: chunks(), close: () => settle("ended") };
  }

  async #arrive(progress: { sent: boolean }): Promise<void> {
    if (this.#faults.refused()) throw new TransportError("refused", false, "connection refused");
    await sleep(this.#ports, this.#faults.delayMs());
    progress.sent = true;
    if (this.#faults.requestsLost()) await new Promise(() => {});
    if (this.#faults.refused()) throw new TransportError("reset", true, "the connection was reset");
  }

  #bounded<T>(request: ApiRequest, work: (progress: { sent: boolean }) => Promise<T>): Promise<T> {
    const progress = { sent: false };
    if (this.#closed) return Promise.reject(new TransportError("aborted", false, "the transport is closed"));
    if (request.signal?.aborted)
      return Promise.reject(new TransportError("aborted", false, "aborted before the request was sent"));
    return new Promise<T>((resolve, reject) => {
      const finish = (action: () => void): void => {
        timer.cancel();
        this.#aborts.delete(abort);
        request.signal?.removeEventListener("abort", abort);
        action();
      };
      const abort = (): void => finish(() => reject(new TransportError("aborted", progress.sent, "aborted")));
      const timer = this.#process.timers.after(request.timeoutMs, () =>
        finish(() =>
          reject(new TransportError("timeout", progress.sent, `no response within ${request.timeoutMs} ms`)),
        ),
      );
      this.#aborts.add(abort);
      request.signal?.addEventListener("abort", abort, { once: true });
      work(progress).then(
        (value) => finish(() => resolve(value)),
        (error: unknown) => finish(() => reject(error)),
      );
    });
  }
}

async function* empty(): AsyncGenerator<Uint8Array> {}
