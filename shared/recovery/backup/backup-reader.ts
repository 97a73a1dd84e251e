import { ProtectorVersion } from "../../decide/state/protector-version.ts";
import { ApiClient } from "../../kube/client/api-client.ts";
import { listConfigMaps } from "../../kube/client/config-maps.ts";
import type { Transport } from "../../kube/client/transport.ts";
import { Backoff } from "../../runtime/backoff.ts";
import { type Ports, sleep } from "../../runtime/clock.ts";
import { type BackupContents, COPY_LABEL, readBackup } from "./backup-format.ts";

const READ_TIMEOUT_MS = 10_000;
const READ_RETRY = { initialMs: 100, maxMs: 5_000, factor: 2, jitter: 0.5 };
/** A cell that does not answer keeps a starting replica from being ready for this long: its other cells need it. */
const MAX_UNREADY_MS = 10_000;

/** The backup that the aggregator of one cell holds of one core. */
export interface CoreBackup {
  readonly entries: readonly ProtectorVersion[];
  /** Resource versions of the core that the aggregator has seen. */
  readonly versions: readonly string[];
}

/** A core whose lost protectors are known once its backup is adopted. */
export interface BackupTarget {
  readonly name: string;
  adopt(backup: CoreBackup): void;
}

export type CopiesResult = "read" | "none" | "failed";

export interface BackupReaderOptions {
  readonly ports: Ports;
  readonly cells: readonly { readonly name: string; readonly transport: Transport | undefined }[];
  /** Where the copies are, in each cell. */
  readonly namespace: string;
  readonly cores: readonly BackupTarget[];
  /** Resolves when the protectors and the releases of this core are known. */
  readonly whenKnown: (core: string, signal: AbortSignal) => Promise<void>;
  readonly onRead: (cell: string, result: CopiesResult, detail: string) => void;
}

/**
 * What the aggregators have kept of the protectors in their cells (design 7), read once at the start: what vanished while no replica
 * ran is known from there alone. Until a cell's copies are read its reviews are answered with an HTTP error.
 */
export class BackupReader {
  readonly #options: BackupReaderOptions;
  readonly #stopping = new AbortController();
  /** What keeps the reviews of a cell from being decided. */
  readonly #problems = new Map<string, string>();
  #startedMs = Number.POSITIVE_INFINITY;

  constructor(options: BackupReaderOptions) {
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
    return waitedMs < MAX_UNREADY_MS ? [...this.#problems.values()] : [];
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

  async #adopt(core: BackupReaderOptions["cores"][number], copies: BackupContents): Promise<void> {
    const { ports, whenKnown } = this.#options;
    const { signal } = this.#stopping;
    const atMs = ports.clock.monotonicMs();
    await whenKnown(core.name, signal);
    if (signal.aborted) return;
    const protectors = copies.protectors.filter((copy) => copy.core === core.name);
    core.adopt({
      entries: protectors.map(({ object }) => new ProtectorVersion(object, atMs)),
      versions: copies.versions.filter((one) => one.core === core.name).map(({ version }) => version),
    });
  }

  /** Undefined when there is nothing to be had, or when it is stopped. */
  async #read(cell: string, api: ApiClient): Promise<BackupContents | undefined> {
    const { ports, namespace, onRead } = this.#options;
    const { signal } = this.#stopping;
    const backoff = new Backoff(READ_RETRY, ports.random);
    while (!signal.aborted) {
      const result = await listConfigMaps(api, namespace, COPY_LABEL, { timeoutMs: READ_TIMEOUT_MS, signal });
      if (result.kind === "ok") return readBackup(result.object);
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
