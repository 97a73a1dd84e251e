/**
 * The apiserver as one component sees it. It shows one namespace alone, so that each component has a world of its own,
 * and can hold back, cut and replay what the component reads.
 */
import type { ApiRequest, ApiResponse, ApiStream, Transport } from "../../shared/kube/client/transport.ts";
import { TransportError } from "../../shared/kube/client/transport.ts";
import { isRecord } from "../../shared/schema/check.ts";

const EXPIRED = { status: 410, headers: {}, chunks: [] as readonly Uint8Array[] };
/** Collections of namespaced objects over all namespaces. */
const COLLECTION = /^(\/api\/v1|\/apis\/[^/]+\/[^/]+)\/([a-z]+)(\?.*)?$/;

export class DisturbedTransport implements Transport {
  readonly #transport: Transport;
  readonly #namespace: string;
  /** Plurals of the resources whose watch events are held back. */
  readonly #held = new Set<string>();
  readonly #opened = new Set<() => void>();
  #isCut = false;
  #isClosed = false;
  /** Resources whose next watch is answered by 410, which leads to a list. */
  #expired = new Set<string>();
  /** By resource: the list to answer the first request with. */
  #replayed = new Map<string, string>();
  readonly #streams = new Map<string, Set<ApiStream>>();
  /** By resource: the version up to which the component has read. */
  readonly #reached = new Map<string, number>();
  /** Writes of the component, with their results. */
  readonly writes: string[] = [];
  /** Lists that need not be the newest state: `resourceVersion=0`. */
  readonly unsafeLists: string[] = [];

  constructor(transport: Transport, namespace: string) {
    this.#transport = transport;
    this.#namespace = namespace;
  }

  /** The resources that the component has watched. */
  get watched(): readonly string[] {
    return [...this.#reached.keys()];
  }

  /** The component has read everything of `resource` up to `version`; true where it does not watch the resource. */
  hasReached(resource: string, version: number): boolean {
    const reached = this.#reached.get(resource);
    return reached === undefined || reached >= version;
  }

  /** Holds back the watch events of the resources that `which` accepts, until {@link release}. */
  hold(which: (resource: string) => boolean): void {
    for (const resource of this.watched) if (which(resource)) this.#held.add(resource);
  }

  release(): void {
    this.#held.clear();
    for (const open of this.#opened) open();
    this.#opened.clear();
  }

  /** Ends all streams; nothing can be read until {@link mend}. */
  cut(): void {
    this.#isCut = true;
    this.#endStreams();
  }

  /** `expire`: the streams can't resume where they ended, so what happened meanwhile is missed. */
  mend(options: { readonly expire: boolean }): void {
    this.#isCut = false;
    if (options.expire) this.#expired = new Set(this.watched);
  }

  /** The lists of all watched resources as they are now. */
  async snapshot(): Promise<ReadonlyMap<string, string>> {
    const lists = this.watched.map(async (resource): Promise<[string, string]> => {
      const path = this.#paths.get(resource) ?? "";
      const { body } = await this.#transport.request({ method: "GET", path, timeoutMs: 10_000 });
      return [resource, body];
    });
    return new Map(await Promise.all(lists));
  }

  /** Answers the next list of each resource with an older one, and holds back what happened since. */
  replay(lists: ReadonlyMap<string, string>): void {
    this.#replayed = new Map(lists);
    for (const resource of lists.keys()) this.#held.add(resource);
  }

  async request(request: ApiRequest): Promise<ApiResponse> {
    this.#check();
    const path = this.#scoped(request.path);
    const resource = resourceOf(path);
    const isList = request.method === "GET" && resource !== undefined;
    if (isList && /[?&]resourceVersion=0(&|$)/.test(path)) this.unsafeLists.push(path);
    const older = request.isList === true && resource !== undefined ? this.#replayed.get(resource) : undefined;
    if (resource !== undefined && older !== undefined) {
      this.#replayed.delete(resource);
      this.#reached.set(resource, versionOf(older));
      return { status: 200, headers: {}, body: older };
    }
    const answer = await this.#transport.request({ ...request, path });
    if (request.method !== "GET") this.writes.push(`${request.method} ${path} ${answer.status}`);
    this.#check();
    if (request.isList === true && resource !== undefined && answer.status === 200) {
      this.#paths.set(resource, path.replace(/\?.*/, ""));
      this.#reached.set(resource, versionOf(answer.body));
    }
    return answer;
  }

  readonly #paths = new Map<string, string>();

  async stream(request: ApiRequest): Promise<ApiStream> {
    this.#check();
    const path = this.#scoped(request.path);
    const resource = resourceOf(path);
    if (resource === undefined) throw new Error(`a stream of ${path}`);
    if (this.#expired.delete(resource)) return { ...EXPIRED, chunks: none(), close: () => {} };
    const stream = await this.#transport.stream({ ...request, path });
    this.#check();
    const streams = this.#streams.get(resource) ?? new Set();
    this.#streams.set(resource, streams.add(stream));
    return { ...stream, chunks: this.#chunks(resource, stream), close: () => stream.close() };
  }

  close(): void {
    this.#isClosed = true;
    this.#endStreams();
    this.release();
  }

  async *#chunks(resource: string, stream: ApiStream): AsyncGenerator<Uint8Array> {
    const decoder = new TextDecoder();
    let rest = "";
    try {
      for await (const chunk of stream.chunks) {
        if (this.#held.has(resource)) await new Promise<void>((resolve) => this.#opened.add(resolve));
        this.#check();
        yield chunk;
        // The consumer asks for the next chunk, so it has read this one.
        const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
        rest = lines.pop() ?? "";
        const version = Math.max(0, ...lines.map(versionOfEvent));
        this.#reached.set(resource, Math.max(this.#reached.get(resource) ?? 0, version));
      }
    } finally {
      this.#streams.get(resource)?.delete(stream);
    }
  }

  #endStreams(): void {
    for (const streams of this.#streams.values()) for (const stream of streams) stream.close();
    this.#streams.clear();
  }

  #check(): void {
    if (this.#isCut || this.#isClosed) throw new TransportError("reset", true, "the connection is cut");
  }

  #scoped(path: string): string {
    const [, root, resource, query = ""] = COLLECTION.exec(path) ?? [];
    if (root === undefined || resource === undefined || resource === "namespaces") return path;
    return `${root}/namespaces/${this.#namespace}/${resource}${query}`;
  }
}

async function* none(): AsyncGenerator<Uint8Array> {}

/** The plural in the path of a collection of one namespace. */
function resourceOf(path: string): string | undefined {
  return /\/namespaces\/[^/]+\/([a-z]+)(\?.*)?$/.exec(path)?.[1];
}

function versionOf(list: string): number {
  return versionIn(JSON.parse(list));
}

function versionOfEvent(line: string): number {
  const event: unknown = JSON.parse(line);
  return isRecord(event) ? versionIn(event.object) : 0;
}

function versionIn(object: unknown): number {
  const metadata = isRecord(object) ? object.metadata : undefined;
  return isRecord(metadata) ? Number(metadata.resourceVersion ?? 0) : 0;
}
