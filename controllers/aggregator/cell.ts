/** The cell's pod snapshot `S` with its position `s` (design 5.1), as accounting looks at it. */
import { oldestComponent, positionComponents } from "../../shared/decide/position.ts";
import type { ConfirmedSource } from "../../shared/kube/source.ts";
import type { WatchEvent } from "../../shared/kube/watch-event.ts";
import type { Clock } from "../../shared/runtime/clock.ts";
import { UPDATE_TRIGGER_COUNTER_ANNOTATION, UPDATE_TRIGGER_POD } from "../../shared/schema/annotations.ts";
import type { Pod } from "../../shared/schema/pod.ts";
import { isComparableVersion } from "../../shared/schema/resource-version.ts";

/** How the time of the newest event is told (design 5.6): `lastEventTime` is written in every mode. */
export type EventTime = (pod: Pod, receivedMs: number) => number;

/** What showed that the cell's etcd was restored to an older state (design 5.4). */
export type RestoreSign = "version" | "counter" | "stored";

/** The cell's pods; one with shards knows the position of each (design 5.4). */
export interface PodSource extends ConfirmedSource<Pod> {
  positionOf?(uid: string): string | undefined;
}

export interface CellOptions {
  readonly pods: PodSource;
  readonly clock: Clock;
  readonly eventTime: EventTime;
  readonly settledGeneration: (pod: Pod) => number | undefined;
  readonly onRestored: (how: RestoreSign, from: string, to: string) => void;
}

export class Cell {
  readonly pods: PodSource;
  readonly #options: CellOptions;
  readonly #byUid = new Map<string, Pod>();
  #lastEventMs: number | undefined;

  /** Follows `pods` from now on; it must still be empty. */
  constructor(options: CellOptions) {
    this.pods = options.pods;
    this.#options = options;
    options.pods.subscribe({
      changed: (before, after) => this.#changed(before, after),
      relisted: () => {
        // A list is an event even when there is no pod in it: nothing is older than its receipt (upstream marks empty lists).
        if (this.#lastEventMs === undefined) this.#lastEventMs = options.clock.nowMs();
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

  settledGeneration(pod: Pod): number | undefined {
    return this.#options.settledGeneration(pod);
  }

  podByUid(uid: string): Pod | undefined {
    return this.#byUid.get(uid);
  }

  podByName(namespace: string, name: string): Pod | undefined {
    return this.pods.get(`${namespace}/${name}`);
  }

  /** To be given every event of the pods' list-watch. */
  watched(event: WatchEvent): void {
    if (event.kind === "versionWentBack") this.#options.onRestored("version", event.from, event.to);
  }

  #changed(before: Pod | undefined, after: Pod | undefined): void {
    if (before !== undefined && before.uid !== after?.uid) this.#byUid.delete(before.uid);
    if (after !== undefined) this.#byUid.set(after.uid, after);
    const pod = after ?? before;
    if (pod === undefined) return;
    const atMs = this.#options.eventTime(pod, this.#options.clock.nowMs());
    this.#lastEventMs = Math.max(this.#lastEventMs ?? 0, atMs);
    if (pod.name === UPDATE_TRIGGER_POD) this.#compareCounter(before, after);
  }

  /** The update trigger counts on from what is stored: the counter goes back only with etcd (design 5.4). */
  #compareCounter(before: Pod | undefined, after: Pod | undefined): void {
    const from = before?.annotations?.[UPDATE_TRIGGER_COUNTER_ANNOTATION];
    const to = after?.annotations?.[UPDATE_TRIGGER_COUNTER_ANNOTATION];
    if (from === undefined || to === undefined || !(Number(to) < Number(from))) return;
    this.#options.onRestored("counter", from, to);
  }
}
