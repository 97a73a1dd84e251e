import { MAX_TIMEOUT_MS } from "../http/limits.ts";

/** kube-apiserver's default for `timeoutSeconds`. */
const DEFAULT_TIMEOUT_MS = 10_000;
/** Part of the timeout that is kept for sending the response, with its bounds. */
const MARGIN_FRACTION = 0.1;
const MIN_MARGIN_MS = 20;
const MAX_MARGIN_MS = 500;

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

/** Milliseconds of a Go duration such as `10s` or `1m30s`; undefined for any other text. */
export function parseGoDurationMs(text: string): number | undefined {
  if (!DURATION.test(text)) return undefined;
  let total = 0;
  for (const [, amount, unit] of text.matchAll(PART)) total += Number(amount) * (UNIT_MS[unit ?? ""] ?? 0);
  return total;
}

/**
 * Milliseconds that an admission request may take: the `timeout` of the query, minus a margin for sending the response.
 * An absent or unreadable timeout counts as Kubernetes' default, an excessive one as Kubernetes' maximum.
 */
export function requestBudgetMs(timeout: string | undefined): number {
  // Requests of one cell mostly carry the same timeout.
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
