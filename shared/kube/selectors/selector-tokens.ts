import { readablePart } from "../../decide/availability/selector.ts";
import type { LabelSelector } from "../../schema/podprotector.ts";

/** `key=value`, or `key` with any value when `value` is undefined. */
interface LabelToken {
  readonly key: string;
  readonly value: string | undefined;
}

export interface Requirements {
  /**
   * Labels that match have all tokens of exactly one of these sets. Never empty: a selector without such requirements
   * has one empty set.
   */
  readonly alternatives: readonly (readonly LabelToken[])[];
  /** The requirements that tokens can't express; undefined without any. */
  readonly residual: LabelSelector | undefined;
}

/** `In` with several values makes at most this many token sets. Beyond this, its token is the existence of the key. */
const MAX_ALTERNATIVES = 32;

/** Returns the readable requirements of a selector; `compileSelector` reports the unreadable ones. */
export function requirementsOf(whole: LabelSelector): Requirements {
  const { selector } = readablePart(whole);
  let alternatives: LabelToken[][] = [
    Object.entries(selector.matchLabels ?? {}).map(([key, value]) => ({ key, value })),
  ];
  const residual: NonNullable<LabelSelector["matchExpressions"]> = [];
  for (const expression of selector.matchExpressions ?? []) {
    const { key, operator, values } = expression;
    if (operator === "In") {
      const choices = [...new Set(values ?? [])];
      // An `In` without values is unreadable, and requires nothing here.
      if (choices.length === 0) continue;
      if (choices.length * alternatives.length <= MAX_ALTERNATIVES) {
        alternatives = choices.flatMap((value) => alternatives.map((tokens) => [...tokens, { key, value }]));
        continue;
      }
      residual.push(expression);
    }
    if (operator === "In" || operator === "Exists")
      alternatives = alternatives.map((tokens) => [...tokens, { key, value: undefined }]);
    else residual.push(expression);
  }
  return {
    alternatives: alternatives.map(distinct),
    residual: residual.length > 0 ? { matchExpressions: residual } : undefined,
  };
}

function distinct(tokens: readonly LabelToken[]): LabelToken[] {
  const seen = new Set<string>();
  return tokens.filter(({ key, value }) => {
    const text = JSON.stringify([key, value]);
    if (seen.has(text)) return false;
    seen.add(text);
    return true;
  });
}
