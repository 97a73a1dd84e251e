/** The pod snapshot of the cell and its position (docs/design.md#state), and the signs of a restore of its etcd. */
import { isForked, parseTriggerMark, type TriggerMark } from "../../../shared/decide/settling/trigger-mark.ts";
import type { ConfirmedInformer } from "../../../shared/kube/informer/informer.ts";
import type { ReflectorEvent } from "../../../shared/kube/informer/reflector-options.ts";
import type { Ports } from "../../../shared/runtime/clock.ts";
import { UPDATE_TRIGGER_POD } from "../../../shared/schema/annotations.ts";
import type { Pod } from "../../../shared/schema/pod.ts";
import { oldestComponent, positionComponents } from "../../../shared/schema/resource-version.ts";
import type { RestoreSign } from "../observe/events.ts";
import type { InPlaceChanges } from "./in-place-changes.ts";
import type { PodParser } from "./parsers.ts";

/** The informer of the cell's pods. The optional members are those of an informer with several shards. */
export interface PodInformer extends ConfirmedInformer<Pod> {
  /** The position of the pod's shard. */
  positionOf?(uid: string): string | undefined;
  /** Monotonic time of the last message from the pod's shard. */
  heardMsOf?(uid: string): number | undefined;
  /** The wanted one of several pods of the same name, each in a different shard. */
  find?(key: string, isWanted: (pod: Pod) => boolean): Pod | undefined;
  /**
   * Relists, unless a relist is recent, because the snapshot may belong to a history that the server has rolled back.
   */
  distrustHistory(): void;
  /**
   * True while the cache may belong to a history that the server has rolled back, until the next complete list
   * (docs/design.md#lost-history).
   */
  readonly historyInDoubt: boolean;
}

/** Longest time that writes wait for the relist after a sign of a restore: the hold must not wait for ever. */
const RELIST_PATIENCE_MS = 5_000;

export interface CellPodsOptions {
  readonly pods: PodInformer;
  readonly ports: Ports;
  readonly parser: Pick<PodParser, "eventTime" | "changes">;
  /**
   * The namespace of the update trigger's pod: pods of the same name in other namespaces are ignored. Undefined without
   * a trigger.
   */
  readonly triggerNamespace: string | undefined;
  readonly onRestored: (how: RestoreSign, from: string, to: string) => void;
}

export class CellPods {
  readonly pods: PodInformer;
  readonly changes: InPlaceChanges;
  readonly #options: CellPodsOptions;
  readonly #byUid = new Map<string, Pod>();
  /** The last mark of the update trigger. It outlives the pod, which a restore may bring back with an old mark. */
  #mark: TriggerMark | undefined;
  #triggerSeenMs: number | undefined;
  /** A restore shows in several signs. After the first one, the others are ignored until the relist. */
  #isRestoreReported = false;
  #trusted: PromiseWithResolvers<void> | undefined;
  #lastEventMs: number | undefined;

  /** Subscribes to `pods`, which must still be empty. */
  constructor(options: CellPodsOptions) {
    this.pods = options.pods;
    this.changes = options.parser.changes;
    this.#options = options;
    options.pods.subscribe({
      changed: (before, after) => this.#changed(before, after),
      relisted: () => this.#relisted(),
    });
  }

  /**
   * One resourceVersion, or one for each shard; undefined before the first list and where versions can't be compared.
   */
  get position(): string | undefined {
    const { position } = this.pods;
    return positionComponents(position).length > 0 ? position : undefined;
  }

  /** The position of the pod's shard; without a UID, the position of the shard that lags most. */
  positionOf(uid: string | undefined): string | undefined {
    if (uid === undefined || this.pods.positionOf === undefined) return oldestComponent(this.pods.position);
    return this.pods.positionOf(uid);
  }

  /** Unix milliseconds of the newest event; undefined before the first list. */
  get lastEventMs(): number | undefined {
    return this.#lastEventMs;
  }

  /** Undefined unless a restore was just noticed; then resolves with the relist, or when the relist takes too long. */
  whenTrusted(): Promise<void> | undefined {
    return this.#trusted?.promise;
  }

  /** Monotonic time of the last event of the update trigger's pod; undefined before the first one. */
  get triggerSeenMs(): number | undefined {
    return this.#triggerSeenMs;
  }

  podByUid(uid: string): Pod | undefined {
    return this.#byUid.get(uid);
  }

  podByName(namespace: string, name: string, isWanted: (pod: Pod) => boolean): Pod | undefined {
    const key = `${namespace}/${name}`;
    const pod = this.pods.find === undefined ? this.pods.get(key) : this.pods.find(key, isWanted);
    return pod !== undefined && isWanted(pod) ? pod : undefined;
  }

  /** Receives every event of the pods' reflector. */
  onWatch(event: ReflectorEvent): void {
    if (event.kind !== "versionWentBack") return;
    this.#isRestoreReported = true;
    this.#options.onRestored("version", event.from, event.to);
  }

  #relisted(): void {
    this.#isRestoreReported = false;
    // An empty list counts as an event, because upstream's algorithms settle by events.
    this.#lastEventMs ??= this.#options.ports.clock.nowMs();
    this.#trusted?.resolve();
    this.#trusted = undefined;
  }

  #changed(before: Pod | undefined, after: Pod | undefined): void {
    const { parser, ports, triggerNamespace } = this.#options;
    if (before !== undefined && before.uid !== after?.uid) this.#byUid.delete(before.uid);
    if (after !== undefined) this.#byUid.set(after.uid, after);
    const pod = after ?? before;
    if (pod === undefined) return;
    this.#lastEventMs = Math.max(this.#lastEventMs ?? 0, parser.eventTime(pod, ports.clock.nowMs()));
    if (after?.name === UPDATE_TRIGGER_POD && after.namespace === triggerNamespace) this.#compareMark(after);
  }

  /** The update trigger increments the stored mark, so a mark of another lineage comes from a restored etcd. */
  #compareMark({ annotations }: Pod): void {
    const found = parseTriggerMark(annotations);
    if (found === undefined) return;
    const known = this.#mark;
    this.#mark = found;
    this.#triggerSeenMs = this.#options.ports.clock.monotonicMs();
    if (known === undefined || !isForked(known, found) || this.#isRestoreReported) return;
    this.#isRestoreReported = true;
    this.#distrustHistory();
    this.#options.onRestored("counter", String(known.counter), String(found.counter));
  }

  #distrustHistory(): void {
    const trusted = Promise.withResolvers<void>();
    this.#trusted = trusted;
    this.#options.ports.timers.after(RELIST_PATIENCE_MS, () => {
      if (this.#trusted === trusted) this.#trusted = undefined;
      trusted.resolve();
    });
    this.pods.distrustHistory();
  }
}
