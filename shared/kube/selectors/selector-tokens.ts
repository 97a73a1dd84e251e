import type { LabelSelector } from "../../schema/podprotector.ts";

/** `key=value`, or `key` with any value when `value` is undefined. */
export interface LabelToken {
  readonly key: string;
  readonly value: string | undefined;
}

export interface Requirements {
  /**
   * The selector matches only labels that have all tokens of one of these sets, and labels have those of at most one. Never
   * empty: a selector without such requirements has one empty set.
   */
  readonly alternatives: readonly (readonly LabelToken[])[];
  /** The requirements that tokens can't express, to be asked as well; undefined when there are none. */
  readonly residual: LabelSelector | undefined;
}

/** A selector with `In` of several values becomes at most this many token sets; beyond, `In` counts as the key's existence. */
const MAX_ALTERNATIVES = 32;

/** What a selector needs labels to have, as far as it can be read. Which part can't be read is `compileSelector`'s to say. */
export function requirementsOf(selector: LabelSelector): Requirements {
  let alternatives: LabelToken[][] = [
    Object.entries(selector.matchLabels ?? {}).map(([key, value]) => ({ key, value })),
  ];
  const residual: NonNullable<LabelSelector["matchExpressions"]> = [];
  for (const expression of selector.matchExpressions ?? []) {
    const { key, operator, values } = expression;
    if (operator === "In") {
      const choices = [...new Set(values ?? [])];
      // An In without values can't be read: it asks for nothing here.
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
