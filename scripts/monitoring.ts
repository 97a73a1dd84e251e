/** The metrics that the alert rules and the dashboard query. */

/**
 * The metrics of this project in an expression, without prefix and without what a histogram appends; each once, in
 * order.
 */
export function metricsOf(expressions: string): readonly string[] {
  const found = [...expressions.matchAll(/\bpodseidon_([a-z][a-z0-9_]*)/g)].map(([, name = ""]) => name);
  return [...new Set(found.map((name) => name.replace(/_(bucket|sum|count)$/, "")))].sort();
}
