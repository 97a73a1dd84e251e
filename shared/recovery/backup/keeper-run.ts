/**
 * One leadership of a backup keeper: compares the stored backups with the cores, writes what has changed, has lost
 * protectors restored, and acknowledges releases.
 */

import type { ApiClient } from "../../kube/client/api-client.ts";
import { type ApiFailure, describeFailure } from "../../kube/client/api-result.ts";
import { sleep } from "../../runtime/clock.ts";
import { cellEntry, namespacedName, type PodProtector } from "../../schema/podprotector.ts";
import { isMadeByHand } from "../lost-protector.ts";
import type { BackupTrouble } from "../recovery-events.ts";
import { ReleaseAcknowledgement } from "../register/acknowledgement.ts";
import type { ReleaseRegister } from "../register/release-register.ts";
import { BackupChunks, type BackupChunksOptions } from "./backup-chunks.ts";
import { type BackupContents, decodeBackup, encodeBackup, type ProtectorBackup } from "./backup-format.ts";
import { BackupRestorer, type BackupRestorerOptions } from "./backup-restorer.ts";
import { askIfBehind, type CoreWatch } from "./core-lag.ts";
import type { CoreRestores } from "./core-restores.ts";
import { CoreVersions, isBehindAny, isBumped } from "./core-versions.ts";
import { KeyedJobs } from "./keyed-jobs.ts";

/** What a backup keeper needs of a core cluster. */
interface BackupCore {
  readonly name: string;
  readonly api: Pick<ApiClient, "create" | "patch" | "putPodProtectorStatus" | "getPodProtector">;
  readonly protectors: CoreWatch & { whenSynced(signal: AbortSignal): Promise<void> };
  readonly releases: Pick<
    ReleaseRegister,
    "hasEnded" | "inForce" | "refresh" | "start" | "stop" | "whenKnown" | "segments"
  >;
}

/** A protector of a core, with the pods that this cell counts for it. */
interface CountedProtector {
  readonly id: { readonly core: string; readonly namespace: string; readonly name: string };
  readonly protector: PodProtector;
  readonly pods: { readonly size: number };
}

/** The protectors that this cell counts, as the aggregator's membership knows them. */
interface CountedProtectors {
  /** Returns what ends the subscription. */
  listen(listener: {
    podChanged(counted: CountedProtector): void;
    protectorChanged(counted: CountedProtector): void;
    protectorGone(counted: CountedProtector): void;
    podSeen(): void;
  }): () => void;
  /** By core and `namespace/name`. */
  protector(core: string, key: string): CountedProtector | undefined;
  protectors(core: string): Iterable<CountedProtector>;
}

export interface BackupKeeperOptions
  extends Pick<BackupChunksOptions, "cellID" | "adopts">,
    Pick<BackupRestorerOptions, "ports" | "headStartMs" | "timeoutMs" | "mayWrite" | "onEvent"> {
  readonly cellApi: Pick<ApiClient, "get" | "create" | "patch">;
  /** Of the backups in the cell, and of the release register in a core. */
  readonly namespace: string;
  readonly membership: CountedProtectors;
  readonly cores: readonly BackupCore[];
  readonly settleMs: number;
  /** Least time between two writes of backups. */
  readonly everyMs: number;
  /** The core was restored to an older state: the history of its protectors may be lost. */
  readonly coreRestored: (core: string) => void;
}

/** The versions of the cores move all the time; the stored ones may lag by this. */
const VERSIONS_EVERY_MS = 30_000;
const RETRY_MS = 5_000;
/** So many denied reads in a row, within some 10 s, mean that there are no backups; one may be an apiserver's start. */
const LEAST_DENIALS = 3;

export class KeeperRun {
  readonly chunks: BackupChunks;
  readonly restorer: BackupRestorer;
  formerCells: ReadonlySet<string> | undefined;
  /** The last read or write of the backups failed. */
  #isFailing = false;
  /** UIDs of protectors that the chunks had no room for. */
  readonly #noRoom = new Set<string>();
  /** When the backups of protectors that have successors end, by UID. */
  readonly #replaced = new Map<string, number>();
  readonly #options: BackupKeeperOptions;
  readonly #restores: CoreRestores;
  readonly #changed = new Set<CountedProtector>();
  /** Stored backups that are not compared with their core yet. */
  #uncompared: readonly ProtectorBackup[] = [];
  readonly #acknowledgements: ReadonlyMap<string, ReleaseAcknowledgement>;
  /** Cores whose protectors and releases are known. An unknown core has lost nothing, and does not delay the others. */
  readonly #knownCores = new Set<string>();
  readonly #versions: CoreVersions;
  #versionsDueMs = 0;
  /** Calls to the cores. */
  readonly #jobs = new KeyedJobs();

  constructor(options: BackupKeeperOptions, restores: CoreRestores) {
    const { cellApi: api, cellID, namespace, adopts = false, timeoutMs, ports, headStartMs, settleMs } = options;
    const { membership, cores, mayWrite, coreRestored, onEvent } = options;
    this.#options = options;
    this.#restores = restores;
    this.chunks = new BackupChunks({ api, cellID, namespace, adopts, timeoutMs });
    this.#acknowledgements = new Map(
      cores.map((core) => [
        core.name,
        new ReleaseAcknowledgement({ core, cellID, namespace, ports, timeoutMs, onEvent }),
      ]),
    );
    this.restorer = new BackupRestorer({
      ...{ cellID, ports, headStartMs, timeoutMs, mayWrite, onEvent },
      isRecorded: (core, protector) => this.#core(core)?.releases.hasEnded(protector) ?? false,
      refreshReleases: async (core, options) => (await this.#core(core)?.releases.refresh(options)) ?? false,
      isPresent: (core, key) => membership.protector(core, key) !== undefined,
      apiOf: (core) => this.#core(core)?.api,
      onEnded: (backup) => this.#end(backup),
    });
    this.#versions = new CoreVersions({
      ...{ settleMs, wentBackMs: restores.wentBackMs },
      onRestored: (core, from, to) => {
        onEvent({ kind: "coreWentBack", core, from, to });
        coreRestored(core);
      },
    });
  }

  get trouble(): BackupTrouble {
    return { failing: Number(this.#isFailing), noRoom: this.#noRoom.size };
  }

  async run(signal: AbortSignal): Promise<void> {
    const { membership, cores, ports, everyMs, mayWrite } = this.#options;
    const unlisten = membership.listen({
      podChanged: (counted) => {
        // Only the first pod makes a backup necessary.
        if (!this.chunks.has(counted.protector.metadata.uid)) this.#change(counted);
      },
      protectorChanged: (counted) => {
        this.#core(counted.id.core)?.releases.inForce(counted.protector);
        this.#change(counted);
      },
      protectorGone: (counted) => this.#gone(counted),
      podSeen: () => undefined,
    });
    const stored = await this.#readFirst(signal);
    if (stored !== undefined) {
      this.#versions.load(stored.versions);
      const compared = Promise.all(cores.map((core) => this.#compareWhenKnown(core, signal)));
      while (!signal.aborted) {
        if (mayWrite()) await this.#work(signal);
        await sleep(ports, everyMs, signal);
      }
      await Promise.all([compared, this.#jobs.ended()]);
    }
    unlisten();
  }

  /** The backups that the previous leader has stored; undefined when `signal` aborts. */
  async #readFirst(signal: AbortSignal): Promise<BackupContents | undefined> {
    let read = await this.chunks.read(signal);
    for (let denials = 0; read.kind !== "ok" && !signal.aborted; ) {
      this.#reportFailure(read);
      denials = read.kind === "rejected" && read.status === 403 ? denials + 1 : 0;
      // Without the permission there are no backups of any id.
      if (denials >= LEAST_DENIALS) this.formerCells ??= new Set();
      await sleep(this.#options.ports, RETRY_MS, signal);
      read = await this.chunks.read(signal);
    }
    if (read.kind !== "ok" || signal.aborted) return undefined;
    this.formerCells = this.chunks.formerCells;
    this.#take(read.object);
    return read.object;
  }

  #take({ protectors, unreadable }: BackupContents): void {
    this.#uncompared = protectors;
    if (unreadable.length > 0) this.#options.onEvent({ kind: "unreadable", keys: unreadable });
  }

  /**
   * After a restore of the cell, or a write of another leader: adds the backups that are missing, and compares all of
   * them again.
   */
  async #readAgain(signal: AbortSignal): Promise<void> {
    const read = await this.chunks.read(signal);
    if (read.kind !== "ok") return this.#reportFailure(read);
    this.#take(read.object);
    for (const name of this.#knownCores) this.#compare(name);
    for (const backup of this.restorer.backups()) this.#put(backup);
  }

  async #compareWhenKnown({ name, protectors, releases }: BackupCore, signal: AbortSignal): Promise<void> {
    await Promise.all([protectors.whenSynced(signal), releases.whenKnown(signal)]);
    const noted = [this.#versions.highest[name]];
    await askIfBehind(protectors, noted, this.#options.ports, signal);
    this.#observeVersion(name);
    // A protector that a lagging stream has not shown yet is not lost.
    while (!this.#versions.isRestored(name) && isBehindAny(protectors.position, noted) && !signal.aborted)
      await sleep(this.#options.ports, RETRY_MS, signal);
    if (signal.aborted) return;
    this.#knownCores.add(name);
    this.#compare(name);
  }

  /** Compares the stored backups of a core with its protectors. */
  #compare(name: string): void {
    for (const counted of this.#options.membership.protectors(name)) this.#changed.add(counted);
    for (const backup of this.#uncompared) if (backup.core === name) this.#compareBackup(backup);
    this.#uncompared = this.#uncompared.filter(({ core }) => core !== name);
  }

  #compareBackup(backup: ProtectorBackup): void {
    const { core, object } = backup;
    const { uid } = object.metadata;
    if (this.restorer.has(uid)) return;
    const present = this.#options.membership.protector(core, namespacedName(object.metadata));
    if (present?.protector.metadata.uid === uid) return;
    if (present !== undefined) this.#end(backup);
    else this.#lose(backup, this.#versions.isRestored(core));
  }

  /** For a settle period, admitted disruptions may still be committed: the successor has to be on hold. */
  #end({ core, object }: ProtectorBackup): void {
    const { membership, ports, settleMs } = this.#options;
    const { uid } = object.metadata;
    const present = membership.protector(core, namespacedName(object.metadata))?.protector.metadata.uid ?? uid;
    if (present === uid || this.#core(core)?.releases.hasEnded(object) === true) this.chunks.remove(uid);
    else if (!this.#replaced.has(uid)) this.#replaced.set(uid, ports.clock.monotonicMs() + settleMs);
  }

  #change(counted: CountedProtector): void {
    if (this.#knownCores.has(counted.id.core)) this.#changed.add(counted);
  }

  #gone({ id, protector }: CountedProtector): void {
    this.#noRoom.delete(protector.metadata.uid);
    if (!this.#knownCores.has(id.core)) return;
    // Of the status, the cell may restore its own reservations. The other cells are on hold.
    const backup = decodeBackup(encodeBackup(id.core, protector, this.#options.cellID));
    // Once an aggregator has written it in a restored core, its own version is of that core.
    const known = [protector.metadata.resourceVersion, this.#versions.highest[id.core]];
    const isRaised = isBumped(this.#core(id.core)?.protectors.position, known);
    this.#lose(backup, isRaised || this.#restores.relisting.has(id.core));
  }

  /** Marks the backup as lost by a restore: the next leader could not tell. */
  #lose(backup: ProtectorBackup, isRestored: boolean): void {
    const lost = isRestored ? { ...backup, isLost: true } : backup;
    this.#replaced.delete(backup.object.metadata.uid);
    if (this.restorer.add(lost, isRestored)) return void this.#put(lost);
    const { core, object } = backup;
    const { uid } = object.metadata;
    // No release is recorded: a core that replaced another one may never have had the protector.
    if (isMadeByHand(object) && this.chunks.has(uid))
      this.#options.onEvent({ kind: "ended", core, protector: namespacedName(object.metadata), uid });
    this.chunks.remove(uid);
  }

  /** Without its reservations where there is no room for them. */
  #put({ core, object, isLost }: ProtectorBackup): boolean {
    const { uid } = object.metadata;
    const put = (most?: number): boolean =>
      this.chunks.put(uid, encodeBackup(core, object, this.#options.cellID, isLost, most));
    return put() || (!this.chunks.has(uid) && put(0));
  }

  /** A cell backs up the protectors that it counts. */
  #isWanted(core: string, protector: PodProtector, pods: number): boolean {
    return this.#core(core) !== undefined && (pods > 0 || cellEntry(protector, this.#options.cellID) !== undefined);
  }

  async #work(signal: AbortSignal): Promise<void> {
    const { cores, onEvent, ports } = this.#options;
    if (this.chunks.isInvalid) await this.#readAgain(signal);
    // The same object may be back, and has a backup again.
    this.restorer.endPresent();
    for (const [uid, dueMs] of this.#replaced)
      if (dueMs <= ports.clock.monotonicMs() && this.#replaced.delete(uid)) this.chunks.remove(uid);
    this.#putChanged();
    for (const { name } of cores) {
      this.#jobs.start(`restore ${name}`, () => this.restorer.restoreDue(name, signal));
    }
    if (this.chunks.isInvalid) return;
    const followed = this.#followed();
    const flushed = await this.chunks.flush(signal);
    if (typeof flushed !== "number") return this.#reportFailure(flushed);
    if (flushed > 0) onEvent({ kind: "copied", chunks: flushed, protectors: this.chunks.size });
    await this.#writeVersions(flushed > 0, signal);
    if (this.chunks.isInvalid) return;
    for (const [name, version] of followed)
      this.#jobs.start(`acknowledge ${name}`, async () => this.#acknowledgements.get(name)?.write(version, signal));
  }

  /** The version of each core's register that is processed once the pending changes of the backups are written. */
  #followed(): [core: string, version: string][] {
    return [...this.#acknowledgements].flatMap(([name, acknowledgement]): [string, string][] => {
      if (!this.#knownCores.has(name)) return [];
      const version = acknowledgement.due((uid) => this.chunks.has(uid));
      return version === undefined ? [] : [[name, version]];
    });
  }

  #putChanged(): void {
    const { membership, onEvent } = this.#options;
    for (const counted of this.#changed) {
      const { id, protector, pods } = counted;
      const { uid } = protector.metadata;
      if (membership.protector(id.core, namespacedName(id)) !== counted) continue;
      this.#noRoom.delete(uid);
      if (!this.#isWanted(id.core, protector, pods.size)) this.chunks.remove(uid);
      else if (!this.#put({ core: id.core, object: protector }) && !this.chunks.has(uid)) {
        this.#noRoom.add(uid);
        onEvent({ kind: "noRoom", uid });
      }
    }
    this.#changed.clear();
  }

  async #writeVersions(isWriting: boolean, signal: AbortSignal): Promise<void> {
    const nowMs = this.#options.ports.clock.monotonicMs();
    if (!isWriting && nowMs < this.#versionsDueMs && !this.#restores.isNews) return;
    this.#restores.isNews = false;
    this.#versionsDueMs = nowMs + VERSIONS_EVERY_MS;
    for (const name of this.#knownCores) this.#observeVersion(name);
    const result = await this.chunks.putVersions(this.#versions.highest, signal);
    if (result.kind !== "ok") return this.#reportFailure(result);
    // All chunks are written: after a failure, no write of the versions comes before theirs.
    this.#isFailing = false;
  }

  #observeVersion(name: string): void {
    const protectors = this.#core(name)?.protectors;
    const version = protectors?.serverVersion ?? protectors?.position;
    this.#versions.observe(name, version, this.#options.ports.clock.monotonicMs());
  }

  #core(name: string): BackupCore | undefined {
    return this.#options.cores.find((core) => core.name === name);
  }

  #reportFailure(failure: ApiFailure): void {
    this.#isFailing = true;
    this.#options.onEvent({ kind: "copyFailed", message: describeFailure(failure) });
  }
}
