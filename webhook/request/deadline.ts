import { DEFAULT_TIMEOUT_MS, MARGIN_FRACTION, MAX_MARGIN_MS, MAX_TIMEOUT_MS, MIN_MARGIN_MS } from "../limits.ts";

const UNIT_MS: Readonly<Record<string, number>> = {
  ns: 1e-6,
  us: 1e-3,
  µs: 1e-3,
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
};
const DURATION = /^(?:[0-9]+(?:\.[0-9]*)?(?:ns|us|µs|ms|s|m|h))+$/;
const PART = /([0-9]+(?:\.[0-9]*)?)(ns|us|µs|ms|s|m|h)/g;

/** Milliseconds of a Go duration such as `10s` or `1m30s`; undefined when the text is none. */
export function parseGoDurationMs(text: string): number | undefined {
  if (!DURATION.test(text)) return undefined;
  let total = 0;
  for (const [, amount, unit] of text.matchAll(PART)) total += Number(amount) * (UNIT_MS[unit ?? ""] ?? 0);
  return total;
}

/**
 * How long a review may take, in milliseconds: the `timeout` that kube-apiserver puts into the query of the call minus a margin
 * for the way back (design 5.8). An absent or unreadable one counts as Kubernetes' default, an excessive one as its maximum.
 */
export function requestBudgetMs(timeout: string | undefined): number {
  // A cell's reviews mostly come with the same one.
  if (last.timeout !== timeout) last = { timeout, budgetMs: budgetOf(timeout) };
  return last.budgetMs;
}

let last: { readonly timeout: string | undefined; readonly budgetMs: number } = {
  timeout: undefined,
  budgetMs: budgetOf(undefined),
};

function budgetOf(timeout: string | undefined): number {
  const asked = timeout === undefined ? undefined : parseGoDurationMs(timeout);
  const timeoutMs = asked === undefined || asked <= 0 ? DEFAULT_TIMEOUT_MS : Math.min(asked, MAX_TIMEOUT_MS);
  const marginMs = Math.min(MAX_MARGIN_MS, Math.max(MIN_MARGIN_MS, timeoutMs * MARGIN_FRACTION));
  return Math.max(0, timeoutMs - marginMs);
}
