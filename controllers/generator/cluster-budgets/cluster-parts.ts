/** What a budget of the core says of the budgets of worker clusters that it stands for. */
import * as v from "valibot";
import type { IntOrPercent } from "../../../shared/decide/minimum/workload-minimum.ts";
import { checker } from "../../../shared/schema/check.ts";
import { intOrPercent } from "../sources/interpret.ts";

/** What one cluster asks for. */
export interface ClusterPart {
  readonly minAvailable?: IntOrPercent | undefined;
  readonly maxUnavailable?: IntOrPercent | undefined;
  readonly suspend?: boolean | undefined;
  /** Of an owner who is asked before each disruption. */
  readonly endpoint?: string | undefined;
}

const Part = v.looseObject({
  minAvailable: v.optional(v.unknown()),
  maxUnavailable: v.optional(v.unknown()),
  suspend: v.optional(v.boolean()),
  endpoint: v.optional(v.string()),
});

const parseStated = checker(v.looseObject({ name: v.string(), clusters: v.record(v.string(), Part) }));

/** What a merged budget says of its clusters. Throws where it can't be read. */
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
