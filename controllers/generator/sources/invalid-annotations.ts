/** Invalid values of annotations: no apiserver validates them, and the generator reads each in a safe way. */
import {
  ENFORCEMENT_ANNOTATION,
  EXPECTED_PODS_ANNOTATION,
  MAX_UNAVAILABLE_ANNOTATION,
  MIN_AVAILABLE_ANNOTATION,
  MIN_RUNNING_ANNOTATION,
} from "../../../shared/schema/annotations.ts";
import type { ObjectMeta } from "../../../shared/schema/podprotector.ts";

/** The valid values of an annotation, and the message for any other value. */
type Rule = readonly [annotation: string, known: RegExp, otherwise: string];

const COUNT = /^([0-9]+|\+?[0-9]+%)$/;
const ALL_PODS = "must be a number or a percentage: all of its pods are required";
const ENFORCEMENT: Rule = [ENFORCEMENT_ANNOTATION, /^(Enforce|Warn|Off)$/, "must be Enforce, Warn or Off"];
const OF_BUDGETS: readonly Rule[] = [
  ENFORCEMENT,
  [EXPECTED_PODS_ANNOTATION, /^(core|cells|0*[1-9][0-9]*)$/, "must be core, cells or a number above 0"],
];
const OF_WORKLOADS: readonly Rule[] = [
  ENFORCEMENT,
  [MIN_AVAILABLE_ANNOTATION, COUNT, ALL_PODS],
  [MAX_UNAVAILABLE_ANNOTATION, COUNT, ALL_PODS],
  [MIN_RUNNING_ANNOTATION, COUNT, ALL_PODS],
];

/** A sentence about the first invalid annotation; undefined without one. */
export function invalidAnnotation({ annotations = {} }: ObjectMeta, isBudget: boolean): string | undefined {
  for (const [annotation, known, otherwise] of isBudget ? OF_BUDGETS : OF_WORKLOADS) {
    const text = annotations[annotation];
    if (text !== undefined && !known.test(text)) return `its annotation ${annotation} ${otherwise}`;
  }
  return undefined;
}
