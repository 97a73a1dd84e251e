/** A map that forgets the oldest entries beyond its size. */
export class BoundedMap<K, V> {
  readonly #max: number;
  readonly #map = new Map<K, V>();

  constructor(max: number) {
    this.#max = max;
  }

  get(key: K): V | undefined {
    return this.#map.get(key);
  }

  set(key: K, value: V): void {
    this.#map.delete(key);
    this.#map.set(key, value);
    for (const oldest of this.#map.keys()) {
      if (this.#map.size <= this.#max) break;
      this.#map.delete(oldest);
    }
  }

  getOrMake(key: K, make: () => V): V {
    const value = this.#map.get(key) ?? make();
    this.set(key, value);
    return value;
  }

  delete(key: K): void {
    this.#map.delete(key);
  }
}
