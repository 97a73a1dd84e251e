/** A map that forgets the entries beyond its size that were set the longest ago. */
export class BoundedMap<K, V> extends Map<K, V> {
  readonly #max: number;

  constructor(max: number) {
    super();
    this.#max = max;
  }

  override set(key: K, value: V): this {
    this.delete(key);
    super.set(key, value);
    for (const oldest of this.keys()) {
      if (this.size <= this.#max) break;
      this.delete(oldest);
    }
    return this;
  }

  getOrMake(key: K, make: () => V): V {
    const value = this.get(key) ?? make();
    this.set(key, value);
    return value;
  }
}
