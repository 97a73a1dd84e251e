import type { CallOptions } from "../../kube/client/api-client.ts";
import { describeFailure } from "../../kube/client/api-result.ts";
import type { Ports } from "../../runtime/clock.ts";
import { REMOVE_CELL_ONCE_ANNOTATION } from "../../schema/annotations.ts";
import { namespacedName, type PodProtector } from "../../schema/podprotector.ts";
import { BoundedLostProtectors } from "../bounded-lost-protectors.ts";
import { isReleased } from "../lost-protector.ts";
import type { RecoveryEvent } from "../recovery-events.ts";
import { markOfCell, type RestoreCalls, restore, restoredObject } from "../restore-protector.ts";
import type { ProtectorBackup } from "./backup-format.ts";

export interface BackupRestorerOptions {
  readonly cellID: string;
  readonly ports: Ports;
  /** How long the generator may try to restore a protector before this cell does. */
  readonly headStartMs: number;
  /** The release register of this core says that this absent protector has ended. */
  readonly isRecorded: (core: string, protector: PodProtector) => boolean;
  /** Reads the release register of this core, which a watch may follow late. False without an answer. */
  readonly refreshReleases: (core: string, options: CallOptions) => Promise<boolean>;
  /** This core has a protector of this `namespace/name`. */
  readonly isPresent: (core: string, key: string) => boolean;
  readonly apiOf: (core: string) => RestoreCalls | undefined;
  /** The protector was released or exists again, or there is no room for it, so that its backup can go. */
  readonly onEnded: (backup: ProtectorBackup) => void;
  readonly timeoutMs: number;
  /** Asked before each restore. */
  readonly mayWrite: () => boolean;
  readonly onEvent: (event: RecoveryEvent) => void;
}

interface Lost {
  /** The UID. */
  readonly key: string;
  readonly object: ProtectorBackup["object"];
  readonly backup: ProtectorBackup;
  dueMs: number;
}

/** Time between two tries, for example while the core lacks the namespace or the CRD. */
const RETRY_MS = 15_000;
/** Protectors of one core that were all lost at once are restored in waves, each bounded in number and time. */
const MAX_AT_ONCE = 200;
const WAVE_MS = 10_000;

/** Restores lost protectors from the cell's backup, after a head start for the generator, which knows the source. */
export class BackupRestorer {
  readonly #options: BackupRestorerOptions;
  /** By core. */
  readonly #lost = new Map<string, BoundedLostProtectors<Lost>>();

  constructor(options: BackupRestorerOptions) {
    this.#options = options;
  }

  get size(): number {
    let size = 0;
    for (const lost of this.#lost.values()) size += lost.size;
    return size;
  }

  has(uid: string): boolean {
    return this.#lost.values().some((lost) => lost.get(uid) !== undefined);
  }

  *backups(): Iterable<ProtectorBackup> {
    for (const lost of this.#lost.values()) for (const { backup } of lost.values()) yield backup;
  }

  /**
   * The protector is absent from its core. True when it is lost, false when it was released, or when there is no room
   * for more of its namespace.
   */
  add(backup: ProtectorBackup, isRestored: boolean): boolean {
    const { core, object, isLost = false } = backup;
    const { uid } = object.metadata;
    const { ports, headStartMs, isRecorded, onEvent } = this.#options;
    if (isReleased(object, isRecorded(core, object), isRestored || isLost)) return false;
    const isNews = !this.has(uid);
    const lost = this.#of(core);
    if (!lost.add({ key: uid, object, backup, dueMs: ports.clock.monotonicMs() + headStartMs })) return false;
    if (isNews) onEvent({ kind: "vanished", ...named(backup) });
    return true;
  }

  #of(core: string): BoundedLostProtectors<Lost> {
    const known = this.#lost.get(core);
    if (known !== undefined) return known;
    const lost = new BoundedLostProtectors<Lost>(({ backup }) => this.#options.onEnded(backup));
    this.#lost.set(core, lost);
    return lost;
  }

  /** Forgets the protectors that exist again or were released. */
  endPresent(): void {
    const { isPresent, isRecorded, onEnded } = this.#options;
    for (const [core, lost] of this.#lost) {
      for (const { key, object, backup } of lost.values()) {
        if (!isPresent(core, namespacedName(object.metadata)) && !isRecorded(core, object)) continue;
        lost.remove(key);
        onEnded(backup);
      }
    }
  }

  /**
   * Restores the protectors of this core that are due, those first that wait longest. What a dead stream has not shown
   * of the release register would bring a released protector back, so the register is read before.
   */
  async restoreDue(core: string, signal: AbortSignal): Promise<void> {
    const { ports, mayWrite, isRecorded, refreshReleases, timeoutMs } = this.#options;
    const startedMs = ports.clock.monotonicMs();
    const due = this.#youngest(core).filter(({ dueMs }) => dueMs <= startedMs);
    if (due.length === 0 || !(await refreshReleases(core, { timeoutMs, signal }))) return;
    due.sort((a, b) => a.dueMs - b.dueMs);
    for (const lost of due.slice(0, MAX_AT_ONCE)) {
      if (signal.aborted || !mayWrite() || ports.clock.monotonicMs() - startedMs > WAVE_MS) return;
      const { object } = lost.backup;
      const isLost = this.#of(core).get(object.metadata.uid) === lost && !isRecorded(core, object);
      if (isLost && !(await this.#restore(lost, signal))) return;
    }
  }

  /** Of several lost protectors of one name only the last one that was made: the others are older versions of it. */
  #youngest(core: string): Lost[] {
    const byKey = new Map<string, Lost>();
    for (const lost of this.#of(core).values()) {
      const key = namespacedName(lost.backup.object.metadata);
      const other = byKey.get(key);
      if (other === undefined || madeMs(lost) >= madeMs(other)) byKey.set(key, lost);
    }
    return [...byKey.values()];
  }

  /** False when the core gives no answer, so that the others need not be tried now. */
  async #restore(lost: Lost, signal: AbortSignal): Promise<boolean> {
    const { cellID, apiOf, timeoutMs, onEvent, ports } = this.#options;
    const { backup } = lost;
    const api = apiOf(backup.core);
    if (api === undefined) return false;
    const options: CallOptions = { timeoutMs, signal };
    // A cell has no authority over others: a restored protector is neither suspended, nor removes another cell.
    const { spec, metadata } = backup.object;
    const { suspend: _, ...inForce } = spec;
    const { [REMOVE_CELL_ONCE_ANNOTATION]: __, ...annotations } = metadata.annotations ?? {};
    const lostObject = { spec: inForce, metadata: { ...metadata, annotations } };
    const object = restoredObject(lostObject, true, markOfCell(cellID));
    const result = await restore(api, object, backup.object, options);
    lost.dueMs = ports.clock.monotonicMs() + RETRY_MS;
    if (result.kind === "ok") onEvent({ kind: "recreated", ...named(backup) });
    // A conflict: another cell, or the generator, has restored it first.
    else if (result.kind !== "conflict") {
      onEvent({ kind: "recreateFailed", ...named(backup), message: describeFailure(result) });
    }
    return result.kind !== "unavailable" || result.status !== undefined;
  }
}

function madeMs({ backup }: Lost): number {
  return Date.parse(backup.object.metadata.creationTimestamp ?? "") || 0;
}

function named({ core, object }: ProtectorBackup): { core: string; protector: string; uid: string } {
  return { core, protector: namespacedName(object.metadata), uid: object.metadata.uid };
}
