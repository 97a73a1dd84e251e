import { ApiClient } from "../shared/kube/api.ts";
import { listConfigMaps } from "../shared/kube/config-maps.ts";
import type { Transport } from "../shared/kube/transport.ts";
import { Backoff } from "../shared/runtime/backoff.ts";
import { type Ports, sleep } from "../shared/runtime/clock.ts";
import { COPY_LABEL, type Copies, readCopies } from "../shared/schema/protector-copy.ts";
import type { Core } from "./core.ts";
import { Entry } from "./entry.ts";
import { COPIES_RETRY, COPIES_TIMEOUT_MS, MAX_UNREADY_FOR_COPIES_MS } from "./limits.ts";

export type CopiesResult = "read" | "none" | "failed";

export interface CellCopiesOptions {
  readonly ports: Ports;
  readonly cells: readonly { readonly name: string; readonly transport: Transport | undefined }[];
  /** Where the copies are, in each cell. */
  readonly namespace: string;
  readonly cores: readonly Pick<Core, "name" | "adopt">[];
  /** Resolves when the protectors and the releases of this core are known. */
  readonly whenKnown: (core: string, signal: AbortSignal) => Promise<void>;
  readonly onRead: (cell: string, result: CopiesResult, detail: string) => void;
}

/**
 * What the aggregators have kept of the protectors in their cells (design 7), read once at the start: what vanished while no replica
 * ran is known from there alone. Until a cell's copies are read its reviews are answered with an HTTP error.
 */
export class CellCopies {
  readonly #options: CellCopiesOptions;
  readonly #stopping = new AbortController();
  /** What keeps the reviews of a cell from being decided. */
  readonly #problems = new Map<string, string>();
  #startedMs = Number.POSITIVE_INFINITY;

  constructor(options: CellCopiesOptions) {
    this.#options = options;
    for (const { name, transport } of options.cells) {
      if (transport !== undefined)
        this.#problems.set(name, `the copies of protectors in cell ${name} are not read yet`);
    }
  }

  start(): void {
    this.#startedMs = this.#options.ports.clock.monotonicMs();
    for (const { name, transport } of this.#options.cells) if (transport !== undefined) void this.#run(name, transport);
  }

  stop(): void {
    this.#stopping.abort();
  }

  problemOf(cell: string): string | undefined {
    return this.#problems.get(cell);
  }

  /** What keeps the replica from being ready: not for long, because its other cells are served all the same. */
  problems(): string[] {
    const waitedMs = this.#options.ports.clock.monotonicMs() - this.#startedMs;
    return waitedMs < MAX_UNREADY_FOR_COPIES_MS ? [...this.#problems.values()] : [];
  }

  async #run(cell: string, transport: Transport): Promise<void> {
    const { cores, onRead } = this.#options;
    const { signal } = this.#stopping;
    const copies = await this.#read(cell, new ApiClient(transport));
    if (copies === undefined || signal.aborted) return;
    // Each as soon as that core is known: what vanished there refuses, whether another one can be reached or not.
    await Promise.all(cores.map((core) => this.#adopt(core, copies)));
    if (signal.aborted) return;
    this.#problems.delete(cell);
    onRead(cell, "read", `${copies.protectors.length} protectors, ${copies.unreadable} unreadable`);
  }

  async #adopt(core: CellCopiesOptions["cores"][number], copies: Copies): Promise<void> {
    const { ports, whenKnown } = this.#options;
    const { signal } = this.#stopping;
    const atMs = ports.clock.monotonicMs();
    await whenKnown(core.name, signal);
    if (signal.aborted) return;
    const protectors = copies.protectors.filter((copy) => copy.core === core.name);
    core.adopt({
      entries: protectors.map(({ object }) => new Entry(object, atMs)),
      versions: copies.versions.filter((one) => one.core === core.name).map(({ version }) => version),
    });
  }

  /** Undefined when there is nothing to be had, or when it is stopped. */
  async #read(cell: string, api: ApiClient): Promise<Copies | undefined> {
    const { ports, namespace, onRead } = this.#options;
    const { signal } = this.#stopping;
    const backoff = new Backoff(COPIES_RETRY, ports.random);
    while (!signal.aborted) {
      const result = await listConfigMaps(api, namespace, COPY_LABEL, { timeoutMs: COPIES_TIMEOUT_MS, signal });
      if (result.kind === "ok") return readCopies(result.object);
      const message = result.kind === "unavailable" ? result.error.message : JSON.stringify(result);
      if (result.kind === "rejected" && result.status === 403) {
        // Without the permission there will be no copies, ever: the cell is served as one without any.
        this.#problems.delete(cell);
        onRead(cell, "none", message);
        return undefined;
      }
      this.#problems.set(cell, `the copies of protectors in cell ${cell} cannot be read: ${message}`);
      onRead(cell, "failed", message);
      await sleep(ports, backoff.nextMs(), signal);
    }
    return undefined;
  }
}
