import type { UnsettledRecord } from "../../../shared/decide/settling/settle-history.ts";
import type { Pod } from "../../../shared/schema/pod.ts";
import type { TrackedProtector } from "../counting/membership.ts";

const NONE: ReadonlySet<never> = new Set();

/**
 * Which protectors hold reservations of which pods, by the pod's name. A pod that was relabelled out of its protector
 * is no longer a member, but its deletion still settles the reservation.
 */
export class ReservationIndex {
  readonly #byPod = new Map<string, Set<TrackedProtector>>();
  readonly #podNames = new Map<TrackedProtector, ReadonlySet<string>>();

  /** Replaces the reservations of `tracked`. */
  set(tracked: TrackedProtector, reservations: readonly Pick<UnsettledRecord, "podName">[]): void {
    const before = this.#podNames.get(tracked) ?? NONE;
    if (before.size === 0 && reservations.length === 0) return;
    const names = new Set<string>();
    for (const { podName } of reservations) if (podName !== undefined) names.add(podName);
    for (const name of before) if (!names.has(name)) this.#remove(tracked, `${tracked.id.namespace}/${name}`);
    for (const name of names) if (!before.has(name)) this.#add(tracked, `${tracked.id.namespace}/${name}`);
    if (names.size === 0) this.#podNames.delete(tracked);
    else this.#podNames.set(tracked, names);
  }

  holdersOf({ namespace, name }: Pod): ReadonlySet<TrackedProtector> {
    return this.#byPod.size === 0 ? NONE : (this.#byPod.get(`${namespace}/${name}`) ?? NONE);
  }

  #add(tracked: TrackedProtector, key: string): void {
    const holders = this.#byPod.get(key);
    if (holders === undefined) this.#byPod.set(key, new Set([tracked]));
    else holders.add(tracked);
  }

  #remove(tracked: TrackedProtector, key: string): void {
    const holders = this.#byPod.get(key);
    holders?.delete(tracked);
    if (holders?.size === 0) this.#byPod.delete(key);
  }
}
