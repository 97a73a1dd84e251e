/** A value that is there, or will be. */
export type MaybePromise<T> = T | Promise<T>;

/**
 * Goes on with `value`: at once when it is there, so that a review which waits for nothing costs no promise and no turn of the
 * microtasks. What `next` throws is thrown in the one case and rejects in the other.
 */
export function chain<A, B>(value: MaybePromise<A>, next: (value: A) => MaybePromise<B>): MaybePromise<B> {
  return value instanceof Promise ? value.then(next) : next(value);
}
