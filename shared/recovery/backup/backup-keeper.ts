/**
 * How protectors outlive their own loss, at the aggregator (design 7): copies of those that this cell counts, kept in the cell; what vanished
 * without a release is created again from them; released ones are acknowledged in the core's register.
 */

import type { ApiClient } from "../../kube/client/api-client.ts";
import type { ApiFailure } from "../../kube/client/api-result.ts";
import type { WatchEvent } from "../../kube/stream/watch-event.ts";
import { type Ports, sleep } from "../../runtime/clock.ts";
import type { PodProtector } from "../../schema/podprotector.ts";
import { cellEntry, namespacedName } from "../../schema/podprotector.ts";
import { compareVersions, isComparableVersion } from "../../schema/resource-version.ts";
import { LostProtectorRestorer } from "../lost-protector-restorer.ts";
import { Acknowledgement } from "../register/acknowledgement.ts";
import { BackupChunks } from "./backup-chunks.ts";
import type { BackupCore } from "./backup-core.ts";
import type { BackupEvent } from "./backup-events.ts";
import { type BackupContents, encodeBackup, type ProtectorBackup } from "./backup-format.ts";
import type { CountedProtector, CountedProtectors } from "./counted-protectors.ts";

export interface BackupKeeperOptions {
  readonly cellID: string;
  readonly ports: Ports;
  readonly cellApi: Pick<ApiClient, "get" | "create" | "patch">;
  /** Where the copies are in the cell, and the register in a core. */
  readonly namespace: string;
  readonly membership: CountedProtectors;
  readonly cores: readonly BackupCore[];
  readonly settleMs: number;
  /** How long the generator may try before this cell does. */
  readonly headStartMs: number;
  /** Least time between two writes of the copies. */
  readonly everyMs: number;
  readonly timeoutMs: number;
  readonly mayWrite: () => boolean;
  /** The core is older than it was seen: its protectors' history may be lost (design 5.4). */
  readonly coreRestored: (core: string) => void;
  readonly onEvent: (event: BackupEvent) => void;
}

/** The versions of the cores move all the time; what is stored may lag so much. */
const VERSIONS_EVERY_MS = 30_000;
const RETRY_MS = 5_000;

export class BackupKeeper {
  readonly #options: BackupKeeperOptions;
  /** Cores whose list after a restore is being taken over now. */
  readonly #restoring = new Set<string>();
  #term: OutliveTerm | undefined;

  constructor(options: BackupKeeperOptions) {
    this.#options = options;
  }

  get lost(): number {
    return this.#term?.lost.size ?? 0;
  }

  get copies(): number {
    return this.#term?.chunks.size ?? 0;
  }

  /** To be given every event of a core's list-watch of protectors. */
  watched(core: string, event: WatchEvent): void {
    if (event.kind === "versionWentBack") this.#restoring.add(core);
    if (event.kind === "listed") this.#restoring.delete(core);
  }

  /** To be given every event of the list-watch of the cell's pods: what makes them be listed anew may be a restore, which brings back old copies. */
  cellWatched(event: WatchEvent): void {
    if (event.kind === "listed" && event.reason !== "first") this.#term?.chunks.doubt();
  }

  /** Keeps copies while this process leads; resolves soon after `signal` aborts. */
  async run(signal: AbortSignal): Promise<void> {
    for (const { releases } of this.#options.cores) releases.start();
    const term = new OutliveTerm(this.#options, (core) => this.#restoring.has(core));
    this.#term = term;
    await term.run(signal);
    this.#term = undefined;
  }

  async stop(): Promise<void> {
    await Promise.all(this.#options.cores.map(({ releases }) => releases.stop()));
  }
}

class OutliveTerm {
  readonly chunks: BackupChunks;
  readonly lost: LostProtectorRestorer;
  readonly #options: BackupKeeperOptions;
  readonly #isRestoring: (core: string) => boolean;
  readonly #dirty = new Set<CountedProtector>();
  /** As they were read last, as long as some core is still to be compared with them. */
  #uncompared: readonly ProtectorBackup[] = [];
  readonly #acknowledgements: ReadonlyMap<string, Acknowledgement>;
  /** Cores whose protectors and releases are known: one that can't be reached keeps nobody else's copies waiting, and has lost nothing. */
  readonly #begun = new Set<string>();
  #versions: Record<string, string> = {};
  #versionsDueMs = 0;
  /** Since when (monotonic) a core has been older than stored. */
  readonly #backSinceMs = new Map<string, number>();

  constructor(options: BackupKeeperOptions, isRestoring: (core: string) => boolean) {
    const { cellApi: api, cellID, namespace, timeoutMs, ports, headStartMs, membership, cores, onEvent } = options;
    this.#options = options;
    this.#isRestoring = isRestoring;
    this.chunks = new BackupChunks({ api, cellID, namespace, timeoutMs });
    this.#acknowledgements = new Map(
      cores.map((core) => [core.name, new Acknowledgement({ core, cellID, namespace, ports, timeoutMs, onEvent })]),
    );
    this.lost = new LostProtectorRestorer({
      ports,
      headStartMs,
      isRecorded: (core, uid) => this.#core(core)?.releases.has(uid) ?? false,
      isPresent: (core, key) => membership.protector(core, key) !== undefined,
      callsOf: (core) => this.#core(core)?.api,
      over: (uid) => this.chunks.remove(uid),
      timeoutMs,
      onEvent,
    });
  }

  async run(signal: AbortSignal): Promise<void> {
    const { membership, ports, everyMs, mayWrite } = this.#options;
    const unlisten = membership.listen({
      podChanged: (entry) => {
        // Only the first pod makes a copy necessary.
        if (!this.chunks.has(entry.protector.metadata.uid)) this.#changed(entry);
      },
      protectorChanged: (entry) => {
        this.#core(entry.id.core)?.releases.inForce(entry.protector);
        this.#changed(entry);
      },
      protectorGone: (entry) => this.#gone(entry),
      podSeen: () => undefined,
    });
    const copies = await this.#readFirst(signal);
    if (copies !== undefined) {
      for (const { core, version } of copies.versions) this.#versions[core] = version;
      const beginning = Promise.all(this.#options.cores.map((core) => this.#begin(core, signal)));
      while (!signal.aborted) {
        if (mayWrite()) await this.#tick(signal);
        await sleep(ports, everyMs, signal);
      }
      await beginning;
    }
    unlisten();
  }

  /** What the last term has left; undefined when the process is to stop. */
  async #readFirst(signal: AbortSignal): Promise<BackupContents | undefined> {
    let read = await this.chunks.read(signal);
    while (read.kind !== "ok" && !signal.aborted) {
      this.#failed(read);
      await sleep(this.#options.ports, RETRY_MS, signal);
      read = await this.chunks.read(signal);
    }
    if (read.kind !== "ok" || signal.aborted) return undefined;
    this.#uncompared = read.object.protectors;
    return read.object;
  }

  /** After a restore of the cell, or a write of another leader: what is missing there is wanted again, and what was over before is looked at as at the start. */
  async #readAgain(signal: AbortSignal): Promise<void> {
    const read = await this.chunks.read(signal);
    if (read.kind !== "ok") return this.#failed(read);
    this.#uncompared = read.object.protectors;
    for (const name of this.#begun) this.#compare(name);
    for (const copy of this.lost.copies()) this.#keep(copy);
  }

  /** Compares a core with what the last term has left of it, as soon as it is known. */
  async #begin({ name, protectors, releases }: BackupCore, signal: AbortSignal): Promise<void> {
    await Promise.all([protectors.whenSynced(signal), releases.whenKnown(signal)]);
    if (signal.aborted) return;
    this.#begun.add(name);
    this.#compareVersion(name);
    this.#compare(name);
  }

  #compare(name: string): void {
    for (const entry of this.#options.membership.protectors(name)) this.#dirty.add(entry);
    for (const copy of this.#uncompared) if (copy.core === name) this.#compareCopy(copy);
    this.#uncompared = this.#uncompared.filter(({ core }) => core !== name);
  }

  #compareCopy(copy: ProtectorBackup): void {
    const { namespace = "", name, uid } = copy.object.metadata;
    if (this.lost.has(uid)) return;
    const present = this.#options.membership.protector(copy.core, namespacedName({ namespace, name }));
    if (present?.protector.metadata.uid === uid) return;
    if (present !== undefined || !this.lost.add(copy, this.#backSinceMs.has(copy.core))) this.chunks.remove(uid);
  }

  #changed(entry: CountedProtector): void {
    if (this.#begun.has(entry.id.core)) this.#dirty.add(entry);
  }

  #gone({ id, protector }: CountedProtector): void {
    if (!this.#begun.has(id.core)) return;
    const copy = { core: id.core, object: protector };
    if (!this.chunks.has(protector.metadata.uid) && !this.#isWanted(id.core, protector, 1)) return;
    if (this.lost.add(copy, this.#isRestoring(id.core))) this.#keep(copy);
    else this.chunks.remove(protector.metadata.uid);
  }

  /** As it was last, which may not have been copied yet. */
  #keep({ core, object }: ProtectorBackup): void {
    this.chunks.put(object.metadata.uid, encodeBackup(core, object, this.#options.cellID));
  }

  /** A protector is copied by the cells that count it. */
  #isWanted(core: string, protector: PodProtector, pods: number): boolean {
    return this.#core(core) !== undefined && (pods > 0 || cellEntry(protector, this.#options.cellID) !== undefined);
  }

  async #tick(signal: AbortSignal): Promise<void> {
    const { cellID, onEvent, membership } = this.#options;
    if (this.chunks.isDoubtful) await this.#readAgain(signal);
    for (const entry of this.#dirty) {
      const { core } = entry.id;
      const { uid } = entry.protector.metadata;
      if (membership.protector(core, namespacedName(entry.id)) !== entry) continue;
      if (!this.#isWanted(core, entry.protector, entry.pods.size)) this.chunks.remove(uid);
      else if (!this.chunks.put(uid, encodeBackup(core, entry.protector, cellID)) && !this.chunks.has(uid))
        onEvent({ kind: "noRoom", uid });
    }
    this.#dirty.clear();
    await this.lost.work(signal);
    if (this.chunks.isDoubtful) return;
    const flushed = await this.chunks.flush(signal);
    if (typeof flushed !== "number") return this.#failed(flushed);
    if (flushed > 0) onEvent({ kind: "copied", chunks: flushed, protectors: this.chunks.size });
    await this.#writeVersions(flushed > 0, signal);
    for (const name of this.#begun) await this.#acknowledgements.get(name)?.write(signal);
  }

  async #writeVersions(isChanged: boolean, signal: AbortSignal): Promise<void> {
    const nowMs = this.#options.ports.clock.monotonicMs();
    if (!isChanged && nowMs < this.#versionsDueMs) return;
    this.#versionsDueMs = nowMs + VERSIONS_EVERY_MS;
    for (const name of this.#begun) this.#compareVersion(name);
    const result = await this.chunks.putVersions(this.#versions, signal);
    if (result.kind !== "ok") this.#failed(result);
  }

  /** The highest version stays stored until a settle period after the core has been older: whoever starts meanwhile is to know. */
  #compareVersion(core: string): void {
    const { ports, settleMs, coreRestored, onEvent } = this.#options;
    const position = this.#core(core)?.protectors.position;
    if (!isComparableVersion(position)) return;
    const stored = this.#versions[core];
    const isBack = isComparableVersion(stored) && compareVersions(position, stored) < 0;
    const nowMs = ports.clock.monotonicMs();
    const sinceMs = this.#backSinceMs.get(core);
    if (isBack && sinceMs === undefined) {
      this.#backSinceMs.set(core, nowMs);
      onEvent({ kind: "coreWentBack", core, from: stored, to: position });
      coreRestored(core);
    }
    if (isBack && nowMs - (sinceMs ?? nowMs) < settleMs) return;
    this.#backSinceMs.delete(core);
    this.#versions = { ...this.#versions, [core]: position };
  }

  #core(name: string): BackupCore | undefined {
    return this.#options.cores.find((core) => core.name === name);
  }

  #failed(failure: ApiFailure): void {
    const message = failure.kind === "unavailable" ? failure.error.message : JSON.stringify(failure);
    this.#options.onEvent({ kind: "copyFailed", message });
  }
}
