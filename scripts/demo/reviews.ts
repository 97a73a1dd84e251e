/** What the webhook answered, from the metrics of its replicas. */

export interface ReviewCounter {
  /** Deletions and evictions that were let go and used quota. */
  readonly admitted: number;
  /** Refused because no more pods are available than promised. */
  readonly denied: number;
  /** Put off for a second, because a disruption before was not accounted for yet; clients repeat these by themselves. */
  readonly busy: number;
}

const LINE = /^podseidon_webhook_reviews_total\{([^}]*)\} (\S+)$/gm;
const OUTCOMES: Readonly<Record<string, keyof ReviewCounter>> = { allowed: "admitted", denied: "denied", busy: "busy" };

/** The sum over the replicas whose metrics are at `urls`. */
export async function scrapeReviews(urls: readonly string[]): Promise<ReviewCounter> {
  const sum: Record<keyof ReviewCounter, number> = { admitted: 0, denied: 0, busy: 0 };
  const pages = await Promise.all(urls.map(async (url) => await (await fetch(url)).text()));
  for (const [, labels = "", value] of pages.flatMap((page) => [...page.matchAll(LINE)])) {
    const outcome = OUTCOMES[/outcome="([^"]*)"/.exec(labels)?.[1] ?? ""];
    if (outcome !== undefined) sum[outcome] += Number(value);
  }
  return sum;
}

export function reviewsSince(now: ReviewCounter, before: ReviewCounter): ReviewCounter {
  return {
    admitted: now.admitted - before.admitted,
    denied: now.denied - before.denied,
    busy: now.busy - before.busy,
  };
}
