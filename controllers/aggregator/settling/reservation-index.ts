/** Which protectors wait for which pods, by the pod's name: those of a reservation, whatever labels the pod has by now. */
export interface NamedReservation {
  readonly podName: string | undefined;
}

interface Holder {
  readonly id: { readonly namespace: string };
}

const NONE: ReadonlySet<never> = new Set();

export class ReservationIndex<K extends Holder> {
  readonly #byPod = new Map<string, Set<K>>();
  readonly #names = new Map<K, ReadonlySet<string>>();

  /** Replaces what `holder` waits for. */
  set(holder: K, records: readonly NamedReservation[]): void {
    const before = this.#names.get(holder);
    if (before === undefined && records.length === 0) return;
    const names = new Set<string>();
    for (const { podName } of records) if (podName !== undefined) names.add(podName);
    for (const name of before ?? NONE) if (!names.has(name)) this.#remove(holder, name);
    for (const name of names) if (before?.has(name) !== true) this.#add(holder, name);
    if (names.size === 0) this.#names.delete(holder);
    else this.#names.set(holder, names);
  }

  holdersOf(pod: { readonly namespace: string; readonly name: string }): ReadonlySet<K> {
    return this.#byPod.size === 0 ? NONE : (this.#byPod.get(`${pod.namespace}/${pod.name}`) ?? NONE);
  }

  #add(holder: K, name: string): void {
    const key = `${holder.id.namespace}/${name}`;
    const holders = this.#byPod.get(key);
    if (holders === undefined) this.#byPod.set(key, new Set([holder]));
    else holders.add(holder);
  }

  #remove(holder: K, name: string): void {
    const key = `${holder.id.namespace}/${name}`;
    const holders = this.#byPod.get(key);
    holders?.delete(holder);
    if (holders?.size === 0) this.#byPod.delete(key);
  }
}
