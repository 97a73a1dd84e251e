/** The cell's pod snapshot `S` with its position `s` (design 5.1), as accounting looks at it. */
import { oldestComponent, positionComponents } from "../../../shared/decide/position.ts";
import { isForked, parseTriggerMark, type TriggerMark } from "../../../shared/decide/settling/trigger-mark.ts";
import type { ConfirmedInformer } from "../../../shared/kube/informer/informer.ts";
import type { WatchEvent } from "../../../shared/kube/stream/watch-event.ts";
import type { Ports } from "../../../shared/runtime/clock.ts";
import { UPDATE_TRIGGER_POD } from "../../../shared/schema/annotations.ts";
import type { Pod } from "../../../shared/schema/pod.ts";
import { isComparableVersion } from "../../../shared/schema/resource-version.ts";
import type { InPlaceChanges } from "./in-place-changes.ts";

/** How the time of the newest event is told (design 5.6): `lastEventTime` is written in every mode. */
export type EventTime = (pod: Pod, receivedMs: number) => number;

/** What showed that the cell's etcd was restored to an older state (design 5.4). */
export const RESTORE_SIGNS = ["version", "counter", "stored"] as const;
export type RestoreSign = (typeof RESTORE_SIGNS)[number];

/** The cell's pods; one with shards knows the position of each (design 5.4). */
export interface PodInformer extends ConfirmedInformer<Pod> {
  positionOf?(uid: string): string | undefined;
  /** When the shard of this pod was last heard. */
  heardMsOf?(uid: string): number | undefined;
  /** Of several pods of one name, each in a shard of its own, the one that is wanted. */
  find?(key: string, isWanted: (pod: Pod) => boolean): Pod | undefined;
  /** What is held may be of a history that is gone: list anew, unless that was done just now. */
  distrust(): void;
  /** From a sign of that until the list is in. */
  readonly isDoubted: boolean;
}

/** How long nothing is published after a restore, because a list is to show first what there is. */
const RELIST_PATIENCE_MS = 5_000;

export interface CellPodsOptions {
  readonly pods: PodInformer;
  readonly ports: Ports;
  readonly eventTime: EventTime;
  readonly changes: InPlaceChanges;
  /** Where the update trigger's pod is: anybody may call a pod like it elsewhere. Undefined: nowhere. */
  readonly triggerNamespace: string | undefined;
  readonly onRestored: (how: RestoreSign, from: string, to: string) => void;
}

export class CellPods {
  readonly pods: PodInformer;
  readonly #options: CellPodsOptions;
  readonly #byUid = new Map<string, Pod>();
  /** What the update trigger left last; it outlives the pod, which may come back as it was long ago. */
  #mark: TriggerMark | undefined;
  #markSeenMs: number | undefined;
  /** A restore that was told, until the list that it leads to is in: one restore shows in many ways. */
  #isTold = false;
  #trusted: PromiseWithResolvers<void> | undefined;
  #lastEventMs: number | undefined;

  /** Follows `pods` from now on; it must still be empty. */
  constructor(options: CellPodsOptions) {
    this.pods = options.pods;
    this.#options = options;
    options.pods.subscribe({
      changed: (before, after) => this.#changed(before, after),
      relisted: () => {
        this.#isTold = false;
        // A list is an event even when there is no pod in it: nothing is older than its receipt (upstream marks empty lists).
        if (this.#lastEventMs === undefined) this.#lastEventMs = options.ports.clock.nowMs();
        this.#trusted?.resolve();
        this.#trusted = undefined;
      },
    });
  }

  /** One version, or one for each shard; undefined before the first list and where versions can't be compared (design 5.4). */
  get position(): string | undefined {
    const { position } = this.pods;
    return positionComponents(position).length > 0 ? position : undefined;
  }

  /** The position of the shard that a pod of this UID belongs to; for an unknown UID the oldest. */
  positionOf(uid: string | undefined): string | undefined {
    if (uid === undefined || this.pods.positionOf === undefined) return oldestComponent(this.pods.position);
    const position = this.pods.positionOf(uid);
    return isComparableVersion(position) ? position : undefined;
  }

  /** Wall clock, Unix milliseconds, of the newest event; undefined before the first list. */
  get lastEventMs(): number | undefined {
    return this.#lastEventMs;
  }

  /** How far changes in place are. */
  get changes(): InPlaceChanges {
    return this.#options.changes;
  }

  /** Undefined when the pods are of one history; otherwise a promise that resolves when they are, or when that takes too long. */
  whenTrusted(): Promise<void> | undefined {
    return this.#trusted?.promise;
  }

  /** The pods may be of a history that is gone: what they are worth is to say that it is (design 5.4). */
  get isDoubted(): boolean {
    return this.pods.isDoubted;
  }

  /** Monotonic time at which the update trigger's pod last came by; undefined before it was seen. */
  get triggerSeenMs(): number | undefined {
    return this.#markSeenMs;
  }

  podByUid(uid: string): Pod | undefined {
    return this.#byUid.get(uid);
  }

  podByName(namespace: string, name: string, isWanted: (pod: Pod) => boolean): Pod | undefined {
    const key = `${namespace}/${name}`;
    if (this.pods.find !== undefined) return this.pods.find(key, isWanted);
    const pod = this.pods.get(key);
    return pod !== undefined && isWanted(pod) ? pod : undefined;
  }

  /** To be given every event of the pods' list-watch. */
  onWatch(event: WatchEvent): void {
    if (event.kind !== "versionWentBack") return;
    this.#isTold = true;
    this.#options.onRestored("version", event.from, event.to);
  }

  #changed(before: Pod | undefined, after: Pod | undefined): void {
    if (before !== undefined && before.uid !== after?.uid) this.#byUid.delete(before.uid);
    if (after !== undefined) this.#byUid.set(after.uid, after);
    const pod = after ?? before;
    if (pod === undefined) return;
    const atMs = this.#options.eventTime(pod, this.#options.ports.clock.nowMs());
    this.#lastEventMs = Math.max(this.#lastEventMs ?? 0, atMs);
    if (after?.name === UPDATE_TRIGGER_POD && after.namespace === this.#options.triggerNamespace)
      this.#compareMark(after);
  }

  /** The update trigger counts on from what is stored: another lineage comes only with another etcd (design 5.4). */
  #compareMark({ annotations }: Pod): void {
    const found = parseTriggerMark(annotations);
    if (found === undefined) return;
    const known = this.#mark;
    this.#mark = found;
    this.#markSeenMs = this.#options.ports.clock.monotonicMs();
    if (known !== undefined && isForked(known, found))
      this.#restored("counter", String(known.counter), String(found.counter));
  }

  #restored(how: RestoreSign, from: string, to: string): void {
    if (this.#isTold) return;
    this.#isTold = true;
    const trusted = Promise.withResolvers<void>();
    this.#trusted = trusted;
    // A list that does not come must not keep the hold from being written.
    this.#options.ports.timers.after(RELIST_PATIENCE_MS, () => {
      if (this.#trusted === trusted) this.#trusted = undefined;
      trusted.resolve();
    });
    this.pods.distrust();
    this.#options.onRestored(how, from, to);
  }
}
