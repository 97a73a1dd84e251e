import { ProtectorVersion } from "../../decide/state/protector-version.ts";
import { ApiClient } from "../../kube/client/api-client.ts";
import { describeFailure } from "../../kube/client/api-result.ts";
import { listConfigMaps } from "../../kube/client/config-maps.ts";
import type { Transport } from "../../kube/client/transport.ts";
import { Backoff } from "../../runtime/backoff.ts";
import { type Ports, sleep } from "../../runtime/clock.ts";
import { BACKUP_LABEL, type BackupContents, readBackup } from "./backup-format.ts";

const READ_TIMEOUT_MS = 10_000;
const READ_RETRY = { initialMs: 100, maxMs: 5_000, factor: 2, jitter: 0.5 };
/**
 * A cell that does not answer keeps a starting replica unready for this long at most: the other cells need the replica.
 */
const MAX_UNREADY_MS = 10_000;
/** Nothing but denials for this long mean that a cell has no backups. One may come from an apiserver that starts. */
const DENIED_FOR_MS = 10_000;
/** A cell that is served without its backups is asked for them this often. */
const DENIED_RETRY_MS = 30_000;

/** What the backup of one cell holds of one core. */
export interface CoreBackup {
  readonly entries: readonly ProtectorVersion[];
  /** UIDs of those that a restored core was found to lack. */
  readonly lost?: ReadonlySet<string>;
  /** Highest resourceVersions of the core. */
  readonly versions: readonly string[];
}

/** A core, which learns its lost protectors from each cell's backup. */
export interface BackupTarget {
  readonly name: string;
  adopt(backup: CoreBackup): void;
}

type BackupReadResult = "read" | "none" | "failed";

interface BackupReaderOptions {
  readonly ports: Ports;
  readonly cells: readonly { readonly name: string; readonly transport: Transport | undefined }[];
  /** Of the backups, in each cell. */
  readonly namespace: string;
  readonly cores: readonly BackupTarget[];
  /** Resolves when the protectors and the release register of this core are known, as new as `versions` if it is. */
  readonly whenKnown: (core: string, versions: readonly string[], signal: AbortSignal) => Promise<void>;
  readonly onRead: (cell: string, result: BackupReadResult, detail: string) => void;
}

/**
 * Reads the backup of each cell once, when a webhook replica starts: only the backups know the protectors that were
 * lost while no replica ran. Until a cell's backup is read, the cell's admission requests get an HTTP error, unless the
 * cell denies it.
 */
export class BackupReader {
  readonly #options: BackupReaderOptions;
  readonly #stopping = new AbortController();
  /** By cell: why its admission requests cannot be decided yet. */
  readonly #problems = new Map<string, string>();
  #startedMs = Number.POSITIVE_INFINITY;

  constructor(options: BackupReaderOptions) {
    this.#options = options;
    for (const { name, transport } of options.cells) {
      if (transport !== undefined)
        this.#problems.set(name, `the backups of protectors in cell ${name} are not read yet`);
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

  /** Why the replica is not ready. Not for long, because the other cells can be served. */
  problems(): string[] {
    const waitedMs = this.#options.ports.clock.monotonicMs() - this.#startedMs;
    return waitedMs < MAX_UNREADY_MS ? [...this.#problems.values()] : [];
  }

  async #run(cell: string, transport: Transport): Promise<void> {
    const { cores, onRead } = this.#options;
    const { signal } = this.#stopping;
    const backup = await this.#read(cell, new ApiClient(transport));
    if (backup === undefined || signal.aborted) return;
    // Each core adopts its part as soon as it is known: an unreachable core must not delay the denials of another.
    await Promise.all(cores.map((core) => this.#adopt(core, backup)));
    if (signal.aborted) return;
    this.#problems.delete(cell);
    onRead(cell, "read", `${backup.protectors.length} protectors, ${backup.unreadable.length} unreadable`);
  }

  async #adopt(core: BackupTarget, backup: BackupContents): Promise<void> {
    const { ports, whenKnown } = this.#options;
    const { signal } = this.#stopping;
    const atMs = ports.clock.monotonicMs();
    const versions = backup.versions.filter((highest) => highest.core === core.name).map(({ version }) => version);
    await whenKnown(core.name, versions, signal);
    if (signal.aborted) return;
    const protectors = backup.protectors.filter((protector) => protector.core === core.name);
    core.adopt({
      entries: protectors.map(({ object }) => new ProtectorVersion(object, atMs)),
      lost: new Set(protectors.filter(({ isLost }) => isLost).map(({ object }) => object.metadata.uid)),
      versions,
    });
  }

  /** Undefined when this reader is stopped. */
  async #read(cell: string, api: ApiClient): Promise<BackupContents | undefined> {
    const { ports, namespace, onRead } = this.#options;
    const { signal } = this.#stopping;
    const backoff = new Backoff(READ_RETRY, ports.random);
    let isServed = false;
    let deniedSinceMs: number | undefined;
    while (!signal.aborted) {
      const result = await listConfigMaps(api, namespace, BACKUP_LABEL, { timeoutMs: READ_TIMEOUT_MS, signal });
      if (result.kind === "ok") return readBackup(result.object);
      const message = describeFailure(result);
      const nowMs = ports.clock.monotonicMs();
      const isDenied = result.kind === "rejected" && result.status === 403;
      deniedSinceMs = isDenied ? (deniedSinceMs ?? nowMs) : undefined;
      if (!isServed && deniedSinceMs !== undefined && nowMs - deniedSinceMs >= DENIED_FOR_MS) {
        isServed = true;
        this.#problems.delete(cell);
        onRead(cell, "none", message);
      } else if (!isServed) {
        this.#problems.set(cell, `the backups of protectors in cell ${cell} cannot be read: ${message}`);
        onRead(cell, "failed", message);
      }
      await sleep(ports, isServed ? DENIED_RETRY_MS : backoff.nextMs(), signal);
    }
    return undefined;
  }
}
