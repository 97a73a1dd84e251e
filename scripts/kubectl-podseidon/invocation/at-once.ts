import { eachAtMost } from "../../../shared/runtime/each-at-most.ts";
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
  let done = 0;
  const actOnAll = (): Promise<void> =>
    eachAtMost(CONCURRENCY, items, async (item, index) => {
      results[index] = await act(item);
      done++;
    });
  await progress.during(doing, actOnAll, () => `${done} of ${items.length}`);
  return results;
}
