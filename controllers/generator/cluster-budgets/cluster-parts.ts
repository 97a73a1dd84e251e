/** The limits of each worker cluster, which a merged budget in the core stores as an annotation. */
import * as v from "valibot";
import type { DisruptionLimits } from "../../../shared/decide/minimum/budget-minimum.ts";
import { checker } from "../../../shared/schema/check.ts";
import { intOrPercent } from "../sources/interpret.ts";

/** The limits of one cluster. */
export interface ClusterPart extends DisruptionLimits {
  readonly suspend?: boolean | undefined;
  /** The endpoint of an owner that is asked before each disruption. */
  readonly endpoint?: string | undefined;
}

const Part = v.looseObject({
  minAvailable: v.optional(v.unknown()),
  maxUnavailable: v.optional(v.unknown()),
  suspend: v.optional(v.boolean()),
  endpoint: v.optional(v.string()),
});

const parseStated = checker(v.looseObject({ name: v.string(), clusters: v.record(v.string(), Part) }));

/** Parses the annotation of a merged budget. Throws for unreadable text. */
export function readClusterParts(text: string): {
  readonly name: string;
  readonly clusters: Readonly<Record<string, ClusterPart>>;
} {
  const raw: unknown = JSON.parse(text);
  const { name, clusters } = parseStated(raw);
  return { name, clusters: Object.fromEntries(Object.entries(clusters).map(([one, part]) => [one, partOf(part)])) };
}

function partOf({ minAvailable, maxUnavailable, suspend, endpoint }: v.InferOutput<typeof Part>): ClusterPart {
  return {
    minAvailable: intOrPercent(minAvailable),
    maxUnavailable: intOrPercent(maxUnavailable),
    ...(suspend === true ? { suspend } : {}),
    ...(endpoint === undefined ? {} : { endpoint }),
  };
}
