/**
 * Seeds that `seeds.test.ts` replays: those that have shown a defect of the product, and one that shows the worth of
 * each rule.
 */

import type { Rule } from "./ablation/rules.ts";
import type { FeatureKind } from "./scenario/features.ts";

interface Regression {
  readonly seed: number;
  /** All features of the world, whatever the seed draws: features that are added later would change its history. */
  readonly features: readonly FeatureKind[];
  readonly what: string;
}

export const REGRESSIONS: readonly Regression[] = [
  {
    seed: 8,
    features: [],
    what: "after a restore of the core, the watch's copy of the lost history became the base of a write",
  },
  { seed: 26, features: [], what: "counts by the old selector were written with the hash of the new one" },
  { seed: 32, features: [], what: "a recreated protector was taken for one that nobody had counted" },
  { seed: 40, features: [], what: "counts by the old selector, during a deletion" },
  {
    seed: 400,
    features: [],
    what: "a busy response after an outage of the core, for a protector that was deleted meanwhile, is justified",
  },
  {
    seed: 10096,
    features: [],
    what: "an outage with all its failed tries within one second was ignored, and a stream resumed after a restore",
  },
  {
    seed: 3061174,
    features: ["accidents"],
    what: "a loss explains a shortfall until the pin of a pod that is ready again has ended",
  },
  {
    seed: 3063925,
    features: ["countedGate", "finalizers"],
    what: "a reservation of a pod that was not Ready yet was taken back, and nothing subtracted the pod any more",
  },
  {
    seed: 3080596,
    features: ["condition", "countedGate", "nodes", "deadNode"],
    what: "a read that found the pod Failed settled its reservation, while the published count still had the pod",
  },
  {
    seed: 3080860,
    features: ["inPlace", "probe", "nodes", "relabel", "deadlines", "voluntaryGates"],
    what: "the same, of a pod that was set to Failed 27 s after that was allowed",
  },
  {
    seed: 3255575,
    features: ["backups"],
    what: "a restored core has a released protector again, which is lost before lagging watches show it to all",
  },
  {
    seed: 3339887,
    features: ["backups"],
    what: "the same, of a protector that the record of a later one of its name had ended",
  },
  {
    seed: 3267315,
    features: ["generator", "nodes"],
    what: "of two admissions that a lost protector had, the older one is written again first, and settles",
  },
  {
    seed: 3268629,
    features: ["accidents"],
    what: "a pod is ready again before its eviction is committed, and another eviction of it is denied meanwhile",
  },
  {
    seed: 3351075,
    features: ["generator", "taintEviction", "staleReview"],
    what: "a protector is lost while somebody deletes it, and released afterwards: its Deployment asks for no pods",
  },
  {
    seed: 3339588,
    features: ["backups", "kubeletClock"],
    what: "replicas start once a lost protector has a successor by hand, and only one that has died knew of the loss",
  },
  {
    seed: 3302681,
    features: ["nodes", "oddPod", "crowded"],
    what: "a pod is placed on a node whose deletion is being decided, and its own is recorded with it",
  },
  {
    seed: 3278560,
    features: ["accidents"],
    what: "a restore lost the second admission of a pod, and kept the record of the first, which settled",
  },
  {
    seed: 3274379,
    features: ["preActivity", "deadNode", "crowded", "kubeletClock"],
    what: "a selector covers more pods, of which fewer are available than are required then",
  },
  {
    seed: 3240742,
    features: ["backups"],
    what: "a replica that knows only a lost protector learns of its successor's release before it sees the successor",
  },
  {
    seed: 3193120,
    features: ["backups", "oddPod", "reviewedTwice"],
    what: "a replica starts on a core that was restored to before its protector's successor, at a higher version",
  },
  {
    seed: 3184818,
    features: ["suspend", "nodes"],
    what: "a status write allowed as suspended has no record while only that of its node's deletion is there",
  },
  {
    seed: 3090776,
    features: ["suspend", "finalizers"],
    what: "an eviction allowed as suspended has no record while only a deletion's is there",
  },
  {
    seed: 3101924,
    features: ["generator", "backups", "deadNode", "backoff", "finalizers"],
    what: "who read a backup that promised nothing does not know of the promise that it got later",
  },
  {
    seed: 3151314,
    features: ["accidents", "criterion"],
    what: "a deletion that one protector has to record leaves no record with another, for which the pod is unavailable",
  },
  {
    seed: 3171680,
    features: ["inPlace", "shards", "evictionCondition", "resolvedImages", "deadlines", "voluntaryGates"],
    what: "a Pending pod whose eviction could not be recorded in time was ready when that was committed",
  },
  {
    seed: 3172260,
    features: ["backups", "taintEviction", "nodes", "deadNode", "crowded"],
    what: "a request that was recorded before its protector was lost is answered when the successor is there",
  },
  {
    seed: 10619,
    features: ["countedGate"],
    what: "a counted condition that was lost before a relist had shown it was never set again",
  },
  {
    seed: 60004,
    features: ["generator"],
    what: "a lagging generator released the protector of a Deployment for an older, deleted one of the same name",
  },
  {
    seed: 1108,
    features: ["suspend"],
    what: "a pending pod that could not be pinned was allowed seconds later, when it had become available",
  },
  {
    seed: 1098,
    features: ["inPlace"],
    what: "the record of a finished change stayed for ever where its protector no longer counted the pod",
  },
  {
    seed: 900020,
    features: ["shards"],
    what: "of two pods of one name in two shards, a protector that was new while one lagged counted only the newer",
  },
  {
    seed: 910008,
    features: ["backups"],
    what: "a replica that started knew an ended protector, by a backup of a restored cell, instead of its successor",
  },
  {
    seed: 910027,
    features: ["backups"],
    what: "a backup that a leader wrote while it stopped outlasted its protector",
  },
  {
    seed: 910107,
    features: ["backups"],
    what: "an eviction that waited for a core used an old state of its pod, and its protector was gone",
  },
  {
    seed: 1235,
    features: ["generator"],
    what: "a protector that was deleted between its creation and a list at that moment was never created again",
  },
  {
    seed: 37539,
    features: ["probe", "suspend"],
    what: "a suspension ended while another core was slow, and a pod was allowed without a probe of its owner",
  },
  {
    seed: 38475,
    features: ["countedGate"],
    what: "a gate was opened in the middle of the first list of protectors, the last of which counted its pod",
  },
  {
    seed: 60187,
    features: ["accidents"],
    what: "a replica that knew nothing wrote first to a restored core, and no component missed the lost reservations",
  },
  {
    seed: 60229,
    features: ["accidents"],
    what: "an aggregator wrote first to a restored core, while all replicas were stopped",
  },
  {
    seed: 3002533,
    features: ["accidents", "deadNode"],
    what: "the first call that a restored core answered was a replica's reservation, which had waited for it",
  },
  {
    seed: 3007941,
    features: ["backups"],
    what: "of two backups of one lost protector, whose selector had just changed, only the older one was in force",
  },
  {
    seed: 3008273,
    features: ["accidents"],
    what: "a restored core took back a reservation and the count after it, and the replica noticed neither",
  },
  {
    seed: 3025471,
    features: ["shards", "backups", "relabel", "twoReviews"],
    what: "a release that a restored core had taken back stayed in force where the register was listed last",
  },
  {
    seed: 3311824,
    features: ["suspend", "terminate", "inPlace", "nodes", "relabel", "reviewedTwice", "deadlines", "voluntaryGates"],
    what: "a pod that no protector selected was changed, and is selected again when it restarts",
  },
  {
    seed: 3317264,
    features: ["shards", "nodes", "relabel", "evictionCondition"],
    what: "a pod that no protector selected is selected again while its eviction, which was decided, is answered",
  },
  {
    seed: 3327804,
    features: ["accidents"],
    what: "a pod makes the loss of another one good, and its eviction was decided while it was not ready",
  },
  {
    seed: 3313158,
    features: ["generator", "backups"],
    what: "a protector is lost while caches still have the mark of its release, which has just been withdrawn",
  },
];

interface RuleSeed {
  readonly rule: Rule;
  readonly seed: number;
  /** Features that the world has, whatever the seed draws; default: accidents. */
  readonly features?: readonly FeatureKind[];
  /** What breaks first, where that is not the invariant of the rule's scene. */
  readonly invariant?: string;
}

/**
 * For each rule a random world that shows its worth: with accidents (`--with accidents`) the seed breaks nothing, and
 * without the rule it breaks the invariant of the rule's scene. `npm run simulate -- --seeds-needed` found them, the
 * first from seed 60000 on.
 */
export const RULE_SEEDS: readonly RuleSeed[] = [
  { rule: "R1", seed: 60000 },
  { rule: "R1Position", seed: 60008 },
  { rule: "R2", seed: 60000 },
  { rule: "R2DeleteOnly", seed: 60000 },
  { rule: "Heard", seed: 60028 },
  { rule: "R3", seed: 60002 },
  { rule: "R3Settle", seed: 60000 },
  { rule: "WeightFollowsAvailable", seed: 60001 },
  { rule: "Fence", seed: 60005 },
  { rule: "Epoch", seed: 60017 },
  { rule: "Hold", seed: 60002 },
  { rule: "SpecHash", seed: 60015 },
  // The repeat has no record that stands for it, which shows before the record is dropped.
  { rule: "RepeatRefresh", seed: 60000, invariant: "S8" },
  { rule: "Paid", seed: 60047 },
  { rule: "PinImmature", seed: 60058 },
  { rule: "PinEviction", seed: 60000 },
  { rule: "MaturityPosition", seed: 60158 },
  { rule: "PinWeight", seed: 60000 },
  { rule: "LiveRead", seed: 60338 },
  { rule: "SlowPins", seed: 60135 },
  { rule: "GateReason", seed: 60026, features: ["countedGate", "deadNode"] },
  { rule: "NotReady", seed: 60004, features: ["countedGate"] },
  { rule: "RepeatNeedsWeight", seed: 60123 },
  { rule: "Reserved", seed: 60000 },
  { rule: "Reached", seed: 60029 },
  { rule: "ConsistentList", seed: 60028 },
  { rule: "LostHistory", seed: 60008 },
  { rule: "Reassert", seed: 60006 },
  { rule: "OwnAnswers", seed: 60006 },
  { rule: "Stall", seed: 60015 },
  { rule: "ConfirmedCache", seed: 60027, features: ["backups", "nodes"] },
  { rule: "AllAgree", seed: 60001 },
  { rule: "RollbackByNonce", seed: 60027 },
  { rule: "RollbackRefused", seed: 60207 },
  { rule: "UnknownOutcome", seed: 60000 },
  { rule: "DecideAgain", seed: 60002 },
  { rule: "DecideTogether", seed: 60013 },
  { rule: "ConfirmRefusal", seed: 60007 },
  { rule: "Deadline", seed: 60001 },
];
