import type { ProgressLine } from "./progress.ts";

/** So many calls of one command are under way at once. */
const CONCURRENCY = 8;

/**
 * The results of `act` in the order of `items`, while the progress line counts them. Rejects with the first failure,
 * after which no other item begins.
 */
export async function mapAtOnce<T, R>(
  { progress }: { readonly progress: Pick<ProgressLine, "during"> },
  doing: string,
  items: readonly T[],
  act: (item: T) => Promise<R>,
): Promise<readonly R[]> {
  const results: R[] = [];
  const queue = items.entries();
  let done = 0;
  let isFailed = false;
  const work = async (): Promise<void> => {
    for (const [index, item] of queue) {
      if (isFailed) return;
      try {
        results[index] = await act(item);
      } catch (error) {
        isFailed = true;
        throw error;
      }
      done++;
    }
  };
  const workAll = (): Promise<unknown> => Promise.all(Array.from({ length: CONCURRENCY }, work));
  await progress.during(doing, workAll, () => `${done} of ${items.length}`);
  return results;
}
