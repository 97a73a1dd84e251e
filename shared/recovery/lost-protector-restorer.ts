/**
 * Protectors that vanished from a core without a release, as this cell knows them (design 7): created again after a head start for the
 * generator, which knows the source.
 */

import type { CallOptions } from "../kube/client/api-client.ts";
import type { Ports } from "../runtime/clock.ts";
import type { BackupEvent } from "./backup/backup-events.ts";
import type { ProtectorBackup } from "./backup/backup-format.ts";
import { isMadeByHand, isMarkedReleased } from "./lost-protector.ts";
import { type RestoreCalls, restore, restoredObject } from "./restore-protector.ts";

export interface LostOptions {
  readonly ports: Ports;
  readonly headStartMs: number;
  readonly isRecorded: (core: string, uid: string) => boolean;
  readonly isPresent: (core: string, key: string) => boolean;
  readonly callsOf: (core: string) => RestoreCalls | undefined;
  /** Its end was meant after all, or it is back: no copy of it is needed. */
  readonly over: (uid: string) => void;
  readonly timeoutMs: number;
  readonly onEvent: (event: BackupEvent) => void;
}

interface Lost {
  readonly copy: ProtectorBackup;
  dueMs: number;
}

/** A core that does not take it, for want of its namespace or its CRD, is asked again after this. */
const AGAIN_MS = 15_000;
/** Creations in one go: what vanished all at once comes back in waves, not in a storm. */
const MAX_AT_ONCE = 200;

export class LostProtectorRestorer {
  readonly #options: LostOptions;
  /** By UID. */
  readonly #lost = new Map<string, Lost>();

  constructor(options: LostOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#lost.size;
  }

  has(uid: string): boolean {
    return this.#lost.has(uid);
  }

  *copies(): Iterable<ProtectorBackup> {
    for (const { copy } of this.#lost.values()) yield copy;
  }

  /**
   * The protector is not in its core any more; false when that was meant. That a core went back in time (`isRestored`) is no deletion, so
   * that what was made by hand comes back then, too.
   */
  add(copy: ProtectorBackup, isRestored: boolean): boolean {
    const { uid } = copy.object.metadata;
    const isMeant =
      isMarkedReleased(copy.object) ||
      this.#options.isRecorded(copy.core, uid) ||
      (!isRestored && isMadeByHand(copy.object));
    if (isMeant) return false;
    const dueMs = this.#options.ports.clock.monotonicMs() + this.#options.headStartMs;
    if (!this.#lost.has(uid)) this.#options.onEvent({ kind: "vanished", ...named(copy) });
    this.#lost.set(uid, { copy, dueMs });
    return true;
  }

  /** Creates again what is due; looks at all of them first. */
  async work(signal: AbortSignal): Promise<void> {
    const { ports, isPresent, isRecorded, over } = this.#options;
    const nowMs = ports.clock.monotonicMs();
    const due: Lost[] = [];
    for (const [uid, lost] of this.#lost) {
      const { core } = lost.copy;
      if (isPresent(core, keyOf(lost.copy)) || isRecorded(core, uid)) {
        this.#lost.delete(uid);
        over(uid);
      } else if (lost.dueMs <= nowMs && due.length < MAX_AT_ONCE) due.push(lost);
    }
    for (const lost of due) {
      if (signal.aborted) return;
      await this.#create(lost, signal);
    }
  }

  async #create(lost: Lost, signal: AbortSignal): Promise<void> {
    const { callsOf, timeoutMs, onEvent, ports } = this.#options;
    const { copy } = lost;
    const calls = callsOf(copy.core);
    if (calls === undefined) return;
    const options: CallOptions = { timeoutMs, signal };
    const result = await restore(calls, restoredObject(copy.object, true), copy.object, options);
    lost.dueMs = ports.clock.monotonicMs() + AGAIN_MS;
    if (result.kind === "ok") onEvent({ kind: "recreated", ...named(copy) });
    // There is one again: another cell, or the generator, was first.
    else if (result.kind !== "conflict") {
      const message = result.kind === "unavailable" ? result.error.message : JSON.stringify(result);
      onEvent({ kind: "recreateFailed", ...named(copy), message });
    }
  }
}

function keyOf({ object }: ProtectorBackup): string {
  return `${object.metadata.namespace ?? ""}/${object.metadata.name}`;
}

function named(copy: ProtectorBackup): { core: string; protector: string; uid: string } {
  return { core: copy.core, protector: keyOf(copy), uid: copy.object.metadata.uid };
}
