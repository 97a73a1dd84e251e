/**
 * Calls `work` for each item, for at most `limit` items at a time. Rejects with the first failure, after which no other
 * item begins.
 */
export async function eachAtMost<T>(
  limit: number,
  items: Iterable<T>,
  work: (item: T, index: number) => Promise<void>,
): Promise<void> {
  // All loops share the iterator. A loop that throws closes it, which ends the others.
  const queue = Iterator.from(items).map((item, index) => [item, index] as const);
  const loop = async (): Promise<void> => {
    for (const entry of queue) await work(...entry);
  };
  await Promise.all(Array.from({ length: limit }, loop));
}
