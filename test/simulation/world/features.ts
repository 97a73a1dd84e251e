/**
 * What some worlds have beside deletions: drawn from the seed after everything else, so that a world without them is what it was before
 * they were built.
 */
import type { Chance } from "./random.ts";

/** Mean times between two events of a kind, in virtual milliseconds; 0: never in this run. */
export interface Features {
  readonly suspendEveryMs: number;
  readonly terminateEveryMs: number;
  /** Changes of pods in place, in each cell. */
  readonly changeEveryMs: number;
  /** Changes of the mood of the owner whom the first protector asks; 0: it asks nobody. */
  readonly ownerEveryMs: number;
  /** Pods that are held back until something is done. */
  readonly holdEveryMs: number;
  /** Pods that are Ready and lack a condition that the protectors ask for; 0: they ask for none. */
  readonly chillEveryMs: number;
  /** Conditions that are lost, where new pods have the counted gate; 0: none has. */
  readonly gateEveryMs: number;
  /** What befalls a Deployment and the protector that the generator keeps for it; 0: protectors are made by hand. */
  readonly generatorEveryMs: number;
  /** What befalls protectors whose copies the cells keep; 0: there are none, and replicas know of a loss what they have seen. */
  readonly copiesEveryMs: number;
  /** Replicas refuse nothing (`--dry-run`). */
  readonly isDryRunMode: boolean;
  /** In so many streams are the pods of a cell watched (`--pod-shards`), as a rule. */
  readonly shards: number;
  /** What befalls one of these streams; 0: there is one. */
  readonly shardEveryMs: number;
  /** Between the end of one accident and the beginning of the next; 0: there are none. */
  readonly accidentEveryMs: number;
  /** Of accidents those only that alter no spec and lose no history. */
  readonly isSteady: boolean;
}

export const FEATURE_KINDS = [
  "suspend",
  "terminate",
  "dryRunMode",
  "inPlace",
  "probe",
  "preActivity",
  "condition",
  "countedGate",
  "generator",
  "shards",
  "copies",
  "accidents",
] as const;
export type FeatureKind = (typeof FEATURE_KINDS)[number];

export function isFeature(name: string): name is FeatureKind {
  return FEATURE_KINDS.some((kind) => kind === name);
}

export interface Wish {
  readonly without: ReadonlySet<string>;
  /** In every world. */
  readonly always: ReadonlySet<string>;
}

export const NONE: Features = {
  ...{ suspendEveryMs: 0, terminateEveryMs: 0, changeEveryMs: 0, ownerEveryMs: 0, holdEveryMs: 0, chillEveryMs: 0 },
  ...{ gateEveryMs: 0, generatorEveryMs: 0, copiesEveryMs: 0, isDryRunMode: false, shards: 1, shardEveryMs: 0 },
  ...{ accidentEveryMs: 0, isSteady: true },
};

/** What a world with shards has: more are rarer, because fewer pods are in each. */
const SHARDS = [2, 2, 4] as const;
export const MOST_SHARDS = Math.max(...SHARDS);

export function drawFeatures(chance: Chance, { without, always }: Wish): Features {
  // Drawn before anything is left out, so that the rest stays the same.
  const has = (kind: FeatureKind, probability: number): boolean => {
    const isDrawn = chance.chance(probability);
    return !without.has(kind) && (isDrawn || always.has(kind));
  };
  const every = (kind: FeatureKind, meanMs: number, probability: number): number => {
    const drawnMs = meanMs * (0.5 + chance.fraction());
    return has(kind, probability) ? drawnMs : 0;
  };
  const drawn: Features = {
    suspendEveryMs: every("suspend", 50_000, 0.15),
    terminateEveryMs: every("terminate", 150_000, 0.1),
    isDryRunMode: has("dryRunMode", 0.04),
    changeEveryMs: every("inPlace", 12_000, 0.12),
    ownerEveryMs: every("probe", 25_000, 0.12),
    holdEveryMs: every("preActivity", 8_000, 0.1),
    chillEveryMs: every("condition", 8_000, 0.1),
    gateEveryMs: every("countedGate", 20_000, 0.12),
    generatorEveryMs: every("generator", 15_000, 0.08),
    shardEveryMs: every("shards", 12_000, 0.12),
    shards: chance.pick(SHARDS),
    // Drawn from streams of their own (copies-scenario.ts, accidents/scenario.ts).
    ...{ copiesEveryMs: 0, accidentEveryMs: 0, isSteady: true },
  };
  const { generatorEveryMs, shardEveryMs } = drawn;
  const sharded = { shardEveryMs, shards: shardEveryMs > 0 ? drawn.shards : 1 };
  // Whose protectors the generator keeps has no other say in what they are.
  return generatorEveryMs > 0 ? { ...NONE, generatorEveryMs, ...sharded } : { ...drawn, ...sharded };
}
