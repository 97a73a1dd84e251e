/**
 * The differences between two forms of a webhook configuration, as text, and whether the later form asks about fewer
 * requests (docs/design.md#webhook-configuration). Pure.
 */
import { isDeepStrictEqual } from "node:util";

interface Webhook {
  readonly name: string;
  readonly [field: string]: unknown;
}

export interface ConfigurationChange {
  /** For example `failurePolicy of pods.podseidon.kubewharf.io is Ignore, it was Fail`. */
  readonly text: string;
  /** The apiserver asks this webhook about fewer requests, or admits them while it is down. */
  readonly isWeaker: boolean;
}

/** From `before` to `after`, whatever the order of the webhooks. */
export function changesBetween(before: readonly Webhook[], after: readonly Webhook[]): readonly ConfigurationChange[] {
  const now = new Map(after.map((webhook) => [webhook.name, webhook]));
  const known = new Set(before.map(({ name }) => name));
  return [
    ...before.flatMap((webhook) => changesOf(webhook, now.get(webhook.name))),
    ...after.filter(({ name }) => !known.has(name)).map(({ name }) => ({ text: `${name} is new`, isWeaker: false })),
  ];
}

function changesOf(before: Webhook, after: Webhook | undefined): readonly ConfigurationChange[] {
  if (after === undefined) return [{ text: `${before.name} is missing`, isWeaker: true }];
  const fields = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  return fields
    .filter((field) => !isDeepStrictEqual(before[field], after[field]))
    .map((field) => ({
      text: `${field} of ${before.name}${valuesIn(before[field], after[field])}`,
      isWeaker: WEAKENS[field]?.(before[field], after[field]) ?? false,
    }));
}

function valuesIn(before: unknown, after: unknown): string {
  const isPlain = [before, after].every((value) => typeof value === "string" || typeof value === "number");
  return isPlain ? ` is ${String(after)}, it was ${String(before)}` : " is another";
}

/** By field of a webhook: whether the change from the first value to the second one is weaker. */
const WEAKENS: Readonly<Record<string, (before: unknown, after: unknown) => boolean>> = {
  // The URL is of another webhook, such as a second installation, or of another cell: the earlier protectors are no
  // longer asked.
  clientConfig: () => true,
  failurePolicy: (_, after) => after === "Ignore",
  rules: lacksOne,
  // Each additional condition exempts requests.
  matchConditions: (before, after) => lacksOne(after, before),
  namespaceSelector: (_, after) => !isEmpty(after),
  objectSelector: (_, after) => !isEmpty(after),
};

/** True when some member of `one` is not in `other`. */
function lacksOne(one: unknown, other: unknown): boolean {
  const others = listOf(other);
  return listOf(one).some((member) => !others.some((found) => isDeepStrictEqual(member, found)));
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

function isEmpty(selector: unknown): boolean {
  return Object.values(Object(selector)).every((part) => Object.keys(Object(part)).length === 0);
}
