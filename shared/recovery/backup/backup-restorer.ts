import type { CallOptions } from "../../kube/client/api-client.ts";
import { describeFailure } from "../../kube/client/api-result.ts";
import type { Ports } from "../../runtime/clock.ts";
import { namespacedName } from "../../schema/podprotector.ts";
import { isReleased } from "../lost-protector.ts";
import type { RecoveryEvent } from "../recovery-events.ts";
import { type RestoreCalls, restore, restoredObject } from "../restore-protector.ts";
import type { ProtectorBackup } from "./backup-format.ts";

interface BackupRestorerOptions {
  readonly ports: Ports;
  readonly headStartMs: number;
  /** The release register of this core has this UID. */
  readonly isRecorded: (core: string, uid: string) => boolean;
  /** This core has a protector of this `namespace/name`. */
  readonly isPresent: (core: string, key: string) => boolean;
  readonly apiOf: (core: string) => RestoreCalls | undefined;
  /** The protector was released or exists again, so that its backup can go. */
  readonly onEnded: (uid: string) => void;
  readonly timeoutMs: number;
  readonly onEvent: (event: RecoveryEvent) => void;
}

interface Lost {
  readonly backup: ProtectorBackup;
  dueMs: number;
}

/** Time between two tries, for example while the core lacks the namespace or the CRD. */
const RETRY_MS = 15_000;
/** Protectors that were all lost at once are restored in waves. */
const MAX_AT_ONCE = 200;

/** Restores lost protectors from the cell's backup, after a head start for the generator, which knows the source. */
export class BackupRestorer {
  readonly #options: BackupRestorerOptions;
  /** By UID. */
  readonly #lost = new Map<string, Lost>();

  constructor(options: BackupRestorerOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#lost.size;
  }

  has(uid: string): boolean {
    return this.#lost.has(uid);
  }

  *backups(): Iterable<ProtectorBackup> {
    for (const { backup } of this.#lost.values()) yield backup;
  }

  /** The protector is absent from its core. True when it is lost, false when it was released. */
  add(backup: ProtectorBackup, isRestored: boolean): boolean {
    const { core, object } = backup;
    const { uid } = object.metadata;
    const { ports, headStartMs, isRecorded, onEvent } = this.#options;
    if (isReleased(object, isRecorded(core, uid), isRestored)) return false;
    if (!this.#lost.has(uid)) onEvent({ kind: "vanished", ...named(backup) });
    this.#lost.set(uid, { backup, dueMs: ports.clock.monotonicMs() + headStartMs });
    return true;
  }

  /** Looks at every lost protector, then restores those that are due. */
  async restoreDue(signal: AbortSignal): Promise<void> {
    const { ports, isPresent, isRecorded, onEnded } = this.#options;
    const nowMs = ports.clock.monotonicMs();
    const due: Lost[] = [];
    for (const [uid, lost] of this.#lost) {
      const { core, object } = lost.backup;
      if (isPresent(core, namespacedName(object.metadata)) || isRecorded(core, uid)) {
        this.#lost.delete(uid);
        onEnded(uid);
      } else if (lost.dueMs <= nowMs && due.length < MAX_AT_ONCE) due.push(lost);
    }
    for (const lost of due) {
      if (signal.aborted) return;
      await this.#restore(lost, signal);
    }
  }

  async #restore(lost: Lost, signal: AbortSignal): Promise<void> {
    const { apiOf, timeoutMs, onEvent, ports } = this.#options;
    const { backup } = lost;
    const api = apiOf(backup.core);
    if (api === undefined) return;
    const options: CallOptions = { timeoutMs, signal };
    const result = await restore(api, restoredObject(backup.object, true), backup.object, options);
    lost.dueMs = ports.clock.monotonicMs() + RETRY_MS;
    if (result.kind === "ok") onEvent({ kind: "recreated", ...named(backup) });
    // A conflict: another cell, or the generator, has restored it first.
    else if (result.kind !== "conflict") {
      onEvent({ kind: "recreateFailed", ...named(backup), message: describeFailure(result) });
    }
  }
}

function named({ core, object }: ProtectorBackup): { core: string; protector: string; uid: string } {
  return { core, protector: namespacedName(object.metadata), uid: object.metadata.uid };
}
