/** What one run consists of: sizes, rates and times, all drawn from the seed. */

import { withAccidents } from "./accident-scenario.ts";
import { withBackups } from "./backup-scenario.ts";
import { withCluster } from "./cluster-scenario.ts";
import { drawFeatures, FEATURE_KINDS, type Features } from "./features.ts";
import { withHabits } from "./habit-scenario.ts";
import { withNodes, withTaintEviction } from "./node-scenario.ts";
import { withPodTrouble } from "./pod-scenario.ts";
import type { Chance } from "./random.ts";

export interface Scenario {
  readonly seed: number;
  readonly durationMs: number;
  readonly settleMs: number;
  readonly requestTimeoutMs: number;
  readonly cells: number;
  readonly webhooks: number;
  readonly podsPerCell: number;
  readonly protectors: readonly ProtectorPlan[];
  /** Mean time between two deletions in one cell. */
  readonly deletionEveryMs: number;
  readonly evictionShare: number;
  /** Shortest time between two writes of one aggregator to one protector. */
  readonly rateMs: number;
  readonly faults: Faults;
  readonly features: Features;
}

export interface ProtectorPlan {
  readonly name: string;
  readonly minAvailable: number;
  readonly minReadySeconds: number;
  readonly compactThreshold: number;
  readonly labels: Readonly<Record<string, string>>;
  /** Name of the core cluster that hosts the protector. */
  readonly core: string;
  readonly unhealthyPodPolicy: "AlwaysAllow" | "IfHealthyBudget";
}

/** Mean times between two faults of a kind, in virtual milliseconds; 0: the fault never happens in this run. */
export type Faults = Readonly<ReturnType<typeof drawFaults>>;

export const FAULT_KINDS = [
  "watchLag",
  "flap",
  "podFailure",
  "crashWebhook",
  "crashAggregator",
  "twoLeaders",
  "partition",
  "lostResponse",
  "commitNever",
  "commitLate",
  "otherWebhookReject",
  "duplicateReview",
  "compact",
  "cutStreams",
  "editSpec",
  "restoreCore",
  "recreateProtector",
  "annotate",
  "clockStep",
  "editSelector",
  "conflictingWriter",
  "forceDelete",
  "burst",
  "dryRun",
  "requestTimeout",
  "staleList",
  "partialPages",
  "pause",
  "slowLink",
  "removeCell",
  "restoreCell",
  "failOpen",
  "secondCore",
  ...FEATURE_KINDS,
] as const;
export type FaultKind = (typeof FAULT_KINDS)[number];

/** Fractions of what the seed draws, to shrink a failing run. */
export interface WorldSize {
  readonly pods: number;
  readonly deletions: number;
}

/** The namespace of all pods and protectors. */
export const NAMESPACE = "default";
export const PROTECTORS = `/apis/podseidon.kubewharf.io/v1alpha1/namespaces/${NAMESPACE}/podprotectors`;
/** The namespace of the product. */
export const OWN_NAMESPACE = "podseidon-system";
export const CORES = ["core", "core-2"] as const;
const MINUTE_MS = 60_000;

/**
 * Draws a scenario. `without` leaves out kinds of faults and features, to shrink a failing run; `always` adds features,
 * whatever the seed draws. Everything is drawn before anything is left out, so that the rest of the scenario stays the
 * same.
 */
export function drawScenario(
  seed: number,
  chance: Chance,
  without: ReadonlySet<FaultKind> = new Set(),
  size: WorldSize = { pods: 1, deletions: 1 },
  always: ReadonlySet<FaultKind> = new Set(),
): Scenario {
  const cells = chance.between(2, 3);
  const podsPerCell = Math.max(3, Math.round(chance.between(7, 30) * size.pods));
  const draft: Scenario = {
    seed,
    // About ten minutes with the quiet that follows.
    durationMs: 5.5 * MINUTE_MS,
    // Both are shorter than in production, so that what waits for them happens more often.
    settleMs: 45_000,
    requestTimeoutMs: 30_000,
    cells,
    webhooks: 3,
    podsPerCell,
    protectors: drawProtectors(chance, cells * podsPerCell, without),
    deletionEveryMs: (1000 * (8 + 14 * chance.fraction())) / size.deletions,
    evictionShare: chance.fraction() * 0.6,
    rateMs: chance.pick([0, 200, 500, 1000]),
    faults: drawFaults(chance, without),
    // Drawn last: a feature that is added later does not change the worlds without it.
    features: drawFeatures(chance.fork(), { without, always }),
  };
  const isRestored = draft.features.shards > 1 && chance.chance(0.4) && !without.has("restoreCell");
  const drawn = withBackups(isRestored ? withRestores(draft) : draft, { without, always });
  const made = drawn.features.generatorEveryMs > 0 ? withGenerator(drawn) : drawn;
  const troubled = withAccidents(withNodes(made, { without, always }), { without, always });
  const crowded = withCluster(troubled, { without, always });
  const odd = withPodTrouble(withTaintEviction(crowded, { without, always }), { without, always });
  const whole = withHabits(odd, { without, always });
  // Drawn last, like every feature that came later.
  return chance.chance(0.25) ? withPackedRecords(whole, chance.pick([0, 1])) : whole;
}

/** Every record, or every record but the newest, is packed. */
function withPackedRecords(drawn: Scenario, compactThreshold: number): Scenario {
  return { ...drawn, protectors: drawn.protectors.map((plan) => ({ ...plan, compactThreshold })) };
}

/** One protector, or two over the same pods, in one core or in two. */
function drawProtectors(chance: Chance, pods: number, without: ReadonlySet<FaultKind>): readonly ProtectorPlan[] {
  const isApart = chance.chance(0.4) && !without.has("secondCore");
  const first: ProtectorPlan = {
    name: "web",
    labels: { app: "web" },
    core: CORES[0],
    minAvailable: Math.max(1, Math.floor(pods * (0.5 + 0.45 * chance.fraction()))),
    minReadySeconds: chance.pick([0, 0, 0, 5, 20]),
    compactThreshold: chance.pick([100, 100, 3]),
    unhealthyPodPolicy: chance.pick(["AlwaysAllow", "AlwaysAllow", "IfHealthyBudget"]),
  };
  const second: ProtectorPlan = {
    ...first,
    name: "web-too",
    core: isApart ? CORES[1] : CORES[0],
    minAvailable: Math.max(1, Math.floor(pods * (0.4 + 0.5 * chance.fraction()))),
  };
  return chance.chance(0.35) ? [first, second] : [first];
}

function drawFaults(chance: Chance, without: ReadonlySet<FaultKind>) {
  const every = (kind: FaultKind, meanMs: number, probability: number): number => {
    const drawn = chance.chance(probability) ? meanMs * (0.5 + chance.fraction()) : 0;
    return without.has(kind) ? 0 : drawn;
  };
  const rate = (kind: FaultKind, most: number, probability: number): number => {
    const drawn = chance.chance(probability) ? most * chance.fraction() : 0;
    return without.has(kind) ? 0 : drawn;
  };
  return {
    watchLagMaxMs: without.has("watchLag") ? 50 : chance.pick([20, 200, 5_000, 60_000]),
    flapEveryMs: every("flap", 10_000, 0.5),
    podFailureEveryMs: every("podFailure", 60_000, 0.3),
    crashWebhookEveryMs: every("crashWebhook", 90_000, 0.4),
    crashAggregatorEveryMs: every("crashAggregator", 90_000, 0.4),
    twoLeadersEveryMs: every("twoLeaders", 120_000, 0.25),
    partitionEveryMs: every("partition", 90_000, 0.3),
    lostResponseRate: rate("lostResponse", 0.1, 0.3),
    commitNeverRate: rate("commitNever", 0.3, 0.4),
    commitLateRate: rate("commitLate", 0.3, 0.4),
    otherWebhookRejectRate: rate("otherWebhookReject", 0.3, 0.3),
    duplicateReviewRate: rate("duplicateReview", 0.2, 0.3),
    compactEveryMs: every("compact", 60_000, 0.3),
    cutStreamsEveryMs: every("cutStreams", 40_000, 0.4),
    editSpecEveryMs: every("editSpec", 90_000, 0.25),
    restoreCoreEveryMs: every("restoreCore", 200_000, 0.15),
    recreateProtectorEveryMs: every("recreateProtector", 200_000, 0.15),
    annotateEveryMs: every("annotate", 5_000, 0.5),
    clockStepEveryMs: every("clockStep", 60_000, 0.3),
    editSelectorEveryMs: every("editSelector", 90_000, 0.15),
    conflictingWriterEveryMs: every("conflictingWriter", 6_000, 0.25),
    forceDeleteEveryMs: every("forceDelete", 60_000, 0.2),
    burstEveryMs: every("burst", 150_000, 0.2),
    dryRunRate: rate("dryRun", 0.2, 0.3),
    // Share of single requests between components and servers that get lost.
    requestTimeoutRate: rate("requestTimeout", 0.05, 0.3),
    staleListRate: rate("staleList", 1, 0.3),
    // Most objects in one page of a list; 0: as many as the client asks for.
    pageObjects: rate("partialPages", 1, 0.3) > 0 ? chance.between(2, 6) : 0,
    pauseEveryMs: every("pause", 60_000, 0.25),
    slowLinkEveryMs: every("slowLink", 60_000, 0.25),
    removeCellEveryMs: every("removeCell", 150_000, 0.15),
    restoreCellEveryMs: every("restoreCell", 200_000, 0.12),
    // Share of the admission requests without a verdict that the API server allows (failurePolicy Ignore).
    failOpenRate: rate("failOpen", 1, 0.2),
  };
}

/** Shards learn of a restore of their cell one after the other. That order needs more restores than the seed draws. */
function withRestores(drawn: Scenario): Scenario {
  const { faults } = drawn;
  return { ...drawn, faults: { ...faults, restoreCellEveryMs: faults.restoreCellEveryMs || 120_000 } };
}

/**
 * The generator makes the one protector, so nobody edits, deletes or recreates it by hand. Without backups replicas do
 * not restart: a replica that starts could not know of a protector that was lost before.
 */
function withGenerator(drawn: Scenario): Scenario {
  const { faults, protectors, features } = drawn;
  const crashWebhookEveryMs = features.backupsEveryMs > 0 ? faults.crashWebhookEveryMs : 0;
  const still = { editSpecEveryMs: 0, editSelectorEveryMs: 0, restoreCoreEveryMs: 0, recreateProtectorEveryMs: 0 };
  return {
    ...drawn,
    protectors: protectors.slice(0, 1).map((plan) => ({ ...plan, name: "deployment-web" })),
    faults: { ...faults, ...still, removeCellEveryMs: 0, crashWebhookEveryMs },
  };
}
