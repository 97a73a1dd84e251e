/** Label selectors in the syntax of flags and `kubectl --selector`: `app=web,tier in (a,b),!legacy`. */
import type { LabelSelector } from "../../schema/podprotector.ts";
import { compileSelector, type Labels } from "./selector.ts";

const KEY = "(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?";
const VALUE = "(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)?";
const EQUALITY = new RegExp(`^(${KEY})\\s*(=|==|!=)\\s*(${VALUE})$`);
const SET = new RegExp(`^(${KEY})\\s+(in|notin)\\s*\\(([^()]*)\\)$`);
const EXISTENCE = new RegExp(`^(!?)\\s*(${KEY})$`);
const WHOLE_KEY = new RegExp(`^${KEY}$`);
const WHOLE_VALUE = new RegExp(`^${VALUE}$`);
/** A prefix, a slash, and a name. */
const MAX_KEY = 253 + 1 + 63;
const MAX_VALUE = 63;

export function isLabelKey(text: string): boolean {
  return text.length <= MAX_KEY && WHOLE_KEY.test(text);
}

export function isLabelValue(text: string): boolean {
  return text.length <= MAX_VALUE && WHOLE_VALUE.test(text);
}

type Requirement = NonNullable<LabelSelector["matchExpressions"]>[number];

/** Undefined for a text that is not a label selector. The empty text selects everything. */
export function parseSelectorText(text: string): LabelSelector | undefined {
  if (text.trim() === "") return {};
  const parts = requirementsIn(text).map((part) => parseRequirement(part.trim()));
  return parts.every((part) => part !== undefined) ? { matchExpressions: parts } : undefined;
}

/** Returns the predicate of a flag's selector; undefined for an invalid selector, or one that selects everything. */
export function selects(text: string): ((labels: Labels) => boolean) | undefined {
  const selector = parseSelectorText(text);
  return selector === undefined || text.trim() === "" ? undefined : compileSelector(selector, "fails").matches;
}

/**
 * A comma inside parentheses separates values. Needs one pass without lookahead, because users may write a megabyte of
 * text.
 */
function requirementsIn(text: string): string[] {
  const parts: string[] = [];
  let isOpen = false;
  for (const piece of text.split(",")) {
    parts.push(isOpen ? `${parts.pop()},${piece}` : piece);
    isOpen = !piece.includes(")") && (isOpen || piece.includes("("));
  }
  return parts;
}

function parseRequirement(text: string): Requirement | undefined {
  const [, key, operator, value] = EQUALITY.exec(text) ?? [];
  if (key !== undefined && value !== undefined) {
    return { key, operator: operator === "!=" ? "NotIn" : "In", values: [value] };
  }
  const [, setKey, setOperator, list] = SET.exec(text) ?? [];
  if (setKey !== undefined && list !== undefined) {
    const values = list.split(",").map((item) => item.trim());
    if (!values.every((item) => WHOLE_VALUE.test(item))) return undefined;
    return { key: setKey, operator: setOperator === "in" ? "In" : "NotIn", values };
  }
  const [, not, existing] = EXISTENCE.exec(text) ?? [];
  if (existing === undefined) return undefined;
  return { key: existing, operator: not === "!" ? "DoesNotExist" : "Exists" };
}
