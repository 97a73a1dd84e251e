/**
 * A process that dies at one of its writes, as its apiserver sees it: before the write, or after it and before the
 * answer.
 */
import {
  type ApiRequest,
  type ApiStream,
  type Transport,
  TransportError,
} from "../../../shared/kube/client/transport.ts";

export interface Crash {
  /** The first write is 1. */
  readonly atWrite: number;
  readonly when: "before" | "after";
}

export class CrashingTransport implements Transport {
  readonly #transport: Transport;
  readonly #crash: Crash | undefined;
  readonly #dead = new AbortController();
  /** Method and resource of each write that was made or begun. */
  readonly writes: string[] = [];

  /** Without `crash` it only counts. */
  constructor(transport: Transport, crash?: Crash) {
    this.#transport = transport;
    this.#crash = crash;
  }

  get isDead(): boolean {
    return this.#dead.signal.aborted;
  }

  async request(request: ApiRequest): Promise<Awaited<ReturnType<Transport["request"]>>> {
    this.#check();
    if (request.method === "GET") return await this.#alive(this.#transport.request(request));
    this.writes.push(describe(request));
    const dies = this.writes.length === this.#crash?.atWrite;
    if (dies && this.#crash?.when === "before") this.#die();
    this.#check();
    const answer = await this.#transport.request(request);
    if (dies) this.#die();
    this.#check();
    return answer;
  }

  async stream(request: ApiRequest): Promise<ApiStream> {
    this.#check();
    const stream = await this.#alive(this.#transport.stream(request));
    this.#dead.signal.addEventListener("abort", () => stream.close(), { once: true });
    return stream;
  }

  close(): void {}

  async #alive<T>(answer: Promise<T>): Promise<T> {
    const result = await answer;
    this.#check();
    return result;
  }

  #die(): void {
    this.#dead.abort();
  }

  #check(): void {
    if (this.#dead.signal.aborted) throw new TransportError("reset", true, "the process is dead");
  }
}

function describe({ method, path }: ApiRequest): string {
  const parts = (path.split("?")[0] ?? "").split("/").filter((part) => part !== "");
  const at = parts.indexOf("namespaces");
  const [resource = "", , subresource] = at < 0 ? parts.slice(-1) : parts.slice(at + 2);
  return `${method} ${resource}${subresource === undefined ? "" : `/${subresource}`}`;
}
