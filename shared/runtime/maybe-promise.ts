/** A value, or a promise of it. */
export type MaybePromise<T> = T | Promise<T>;

/**
 * Calls `next` with the value: at once when it is no promise, so that an admission request that waits for nothing costs
 * no promise and no microtask. An error of `next` is thrown then, and rejects otherwise.
 */
export function chain<A, B>(value: MaybePromise<A>, next: (value: A) => MaybePromise<B>): MaybePromise<B> {
  return value instanceof Promise ? value.then(next) : next(value);
}
