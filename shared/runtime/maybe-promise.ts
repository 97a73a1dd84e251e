/** A value, or a promise of it. */
export type MaybePromise<T> = T | Promise<T>;

/**
 * Calls `next` with the value: at once when it is not a promise, so that an admission request that does not wait costs
 * no promise and no microtask. An error of `next` is thrown in this case, and rejects otherwise.
 */
export function chain<A, B>(value: MaybePromise<A>, next: (value: A) => MaybePromise<B>): MaybePromise<B> {
  return value instanceof Promise ? value.then(next) : next(value);
}
