/**
 * The texts of `explain`: every refusal, failure, condition, reason and cause of a hold that an operator may see. Pure.
 */

import { PROMISE_LESS } from "../../../shared/decide/minimum/promise-less.ts";
import type { Decision } from "../../../shared/decide/quota.ts";

interface Meaning {
  readonly means: string;
  /** What to do, or what ends it. */
  readonly act: string;
  /** Matches the message, if there is one. */
  readonly text?: RegExp;
}

export interface Explained extends Meaning {
  readonly name: string;
  readonly kind: "denial" | "failure" | "condition" | "reason of a condition" | "cause of a hold";
}

type QuotaCause = Extract<Decision, { allowed: false }>["cause"];

const SECOND = "Nothing: clients repeat the deletion, and it passes by itself within a second or so.";
const WAIT_FOR_PODS = "Find out why pods are not ready: kubectl podseidon status NAME, kubectl podseidon gates POD.";

const IMPOSSIBLE = `Where its owner is there, ${PROMISE_LESS}. See docs/runbooks/PodseidonProtectorImpossible.md.`;

const QUOTA: Readonly<Record<QuotaCause, Meaning>> = {
  AtMinimum: {
    means: "No more pods are available than the promise asks for.",
    act: `${WAIT_FOR_PODS} If as many are promised as there are, ${PROMISE_LESS}.`,
    text: /capacity is at the minimum|no more pods match than must be available/,
  },
  NotReady: {
    means: "The spare pods have the counted gate: they are counted, and their kubelets have not set Ready yet.",
    act: `${SECOND} If not, look at the nodes of these pods: kubectl podseidon gates POD.`,
    text: /counted and not Ready yet/,
  },
  Reserved: {
    means: "The spare pods are reserved by disruptions that were allowed and are not counted yet.",
    act:
      `${SECOND} Where another webhook has turned down what was allowed, it takes minutes. kubectl podseidon why POD ` +
      "names who holds them. If it names pods in cells on hold, it passes when these are counted again: " +
      "docs/runbooks/PodseidonCellOnHold.md.",
    text: /disruptions that are not accounted for yet/,
  },
  OthersShare: {
    means: "What this caller reserved lately did not happen, so half of the quota is kept for others.",
    act: "What rejects the caller's deletions after podseidon allowed them? Another webhook, or a failing client.",
    text: /leaves half of the quota to others/,
  },
  UnhealthyBudget: {
    means: "unhealthyPodPolicy IfHealthyBudget keeps unavailable pods, too, until enough pods are available.",
    act: `${WAIT_FOR_PODS} Or set unhealthyPodPolicy to AlwaysAllow.`,
    text: /unhealthyPodPolicy IfHealthyBudget/,
  },
  NotCounted: {
    means: "No aggregator has counted the pods of this cell.",
    act:
      "Is its aggregator running, with the id that the webhook configuration names? kubectl podseidon doctor says. " +
      "If the cluster had another id, its log says so: docs/operations.md#rename-a-cell.",
    text: /no aggregator has counted the pods of this cell/,
  },
  OnHold: {
    means: "Admission history of this cell may have been lost, so nothing is allowed until it can't matter any more.",
    act: "It ends by itself after the settle period (75 s). If not: docs/runbooks/PodseidonCellOnHold.md.",
    text: /cell is on hold\b.*because its admission history|has been on hold for/,
  },
  ConcurrentLag: {
    means: "As many disruptions are under way as the protector's maxConcurrentLag allows.",
    act: SECOND,
    text: /no more than its maxConcurrentLag/,
  },
  HistoryFull: {
    means: "The protector has no room for another reservation until disruptions under way are counted.",
    act: "It passes when the aggregator catches up: docs/runbooks/PodseidonReservationStuck.md.",
    text: /its admission history is full/,
  },
  RefreshedTooLong: {
    means: "This very deletion was repeated for minutes without happening; its reservation has to settle first.",
    act: "It passes within minutes. Find out what rejects the deletion after podseidon allowed it.",
    text: /was repeated for too long and has to settle/,
  },
  PreActivity: {
    means: "An annotation of the pod says that some work comes before its disruption.",
    act: "Wait until the client that does this work removes the annotation pre-activity.xpdb.form3.tech/....",
    text: /waits for the pre-activities of this pod/,
  },
  TooManyTogether: {
    means: "One request would take several pods of the protector, more than it can spare.",
    act: "Drain the node first, or delete the pods one after the other.",
    text: /of its pods would go at once/,
  },
};

const DENIALS: Readonly<Record<string, Meaning>> = {
  ...QUOTA,
  Vanished: {
    means: "The protector vanished from its core without a release. It stays in force until it is restored.",
    act: "Wait a minute: the generator or a backup restores it. To give it up, run the command of the denial.",
    text: /vanished without a release/,
  },
  queue: {
    means: "Too many disruptions of one protector wait for a decision.",
    act: SECOND,
    text: /too many disruptions waiting for a decision/,
  },
  time: {
    means: "The webhook could not decide before the deadline of the request.",
    act: `${SECOND} If it stays: docs/runbooks/PodseidonReviewsSlow.md.`,
    text: /could not decide before the deadline/,
  },
  recovering: {
    means: "The core was out of reach until just now, and the webhook looks for reservations that were lost.",
    act: "It passes by itself within seconds.",
    text: /was out of reach until just now/,
  },
  "Probe:refused": {
    means: "The owner's probe of the protector (spec.probe) says no.",
    act: "Ask the owner of the probe's endpoint; the denial has its words.",
    text: /is told by its probe/,
  },
  "Probe:failed": {
    means: "The owner's probe could not be asked, or answered with something that is no answer.",
    act: "Mend the endpoint: docs/runbooks/PodseidonProbeNotAnswering.md.",
    text: /could not ask its probe|has a probe that can't be asked/,
  },
  "Probe:down": {
    means: "The owner's probe does not answer, and has not for a while, so it is asked less often.",
    act: "Mend the endpoint: docs/runbooks/PodseidonProbeNotAnswering.md.",
    text: /has a probe that does not answer/,
  },
  "Probe:overloaded": {
    means: "Too many questions to owners' probes wait.",
    act: SECOND,
    text: /too many questions waiting for its probe/,
  },
  UnboundEviction: {
    means: "The eviction does not say which pod it means by UID, and --require-bound-evictions asks for it.",
    act: "Apply the MutatingWebhookConfiguration podseidon again: kubectl podseidon doctor.",
    text: /is not bound to the pod's UID/,
  },
  Conflict: {
    means: "The precondition of the deletion does not hold: the pod was replaced or changed.",
    act: "Read the pod again, and repeat.",
    text: /in the precondition .* does not match/,
  },
  PodsUnknown: {
    means: "The pods of the node can't be listed, so nobody knows which protected ones its deletion would take.",
    act: "Has the webhook its permissions and its kubeconfig in that cluster? kubectl podseidon doctor.",
    text: /its pods can't be listed/,
  },
  WorkloadDeletion: {
    means: "A protected workload that asks for replicas is not deleted: its pods would go with it.",
    act: "Scale it to zero first, or give up its protection: docs/operations.md#delete-a-workload.",
    text: /podseidon-workload-deletions/,
  },
};

const FAILURES: Readonly<Record<string, Meaning>> = {
  "failed calling webhook": {
    means: "kube-apiserver got no decision: the webhook is not reached, rejects the call, or can't decide.",
    act: "After 'an error on the server', the webhook's reason follows. Else: docs/runbooks/PodseidonWebhookDown.md.",
    text: /failed calling webhook "[^"]*podseidon/,
  },
  "core-unavailable": {
    means: "A core cluster did not answer, or with an error. failurePolicy decides (Fail: the deletion fails).",
    act: "docs/runbooks/PodseidonCacheStale.md; kubectl podseidon doctor.",
    text: /has not confirmed its protectors/,
  },
  "core-rejected": {
    means: "A core cluster rejected the write of a reservation: permissions or CRD are not those of this release.",
    act: "Apply the manifests of this release to the core: kubectl podseidon doctor.",
  },
  "cell-unavailable": {
    means: "The webhook could not read the pod of an eviction in its cluster.",
    act: "Has the webhook its permissions and its kubeconfig there? kubectl podseidon doctor.",
  },
  deadline: {
    means: "The result of a write was not known at the deadline. The reservation may be there, and settles by itself.",
    act: "Repeat the deletion. If it stays: docs/runbooks/PodseidonReviewsFailing.md.",
  },
  defect: { means: "A mistake in podseidon, in this one request.", act: "docs/runbooks/PodseidonDefect.md." },
};

const CONDITIONS: Readonly<Record<string, Meaning>> = {
  Healthy: { means: "At least as many pods are available as promised.", act: "False: see its reason." },
  DisruptionImpossible: {
    means: "As many pods are promised as there are, so none can ever go: no node with them can be drained.",
    act: IMPOSSIBLE,
  },
  NoPodsMatched: {
    means: "No running pod matches the selector.",
    act: "Is the selector right, and do its pods run? kubectl podseidon status NAME.",
  },
  CellStale: {
    means: "A cell of the protector is not counted, or its aggregator is silent, and its last count stays.",
    act: "kubectl podseidon doctor. Is its cluster down? Then kubectl podseidon remove-cell CELL -A --may-return.",
    text: /has (been silent|not been counted) for/,
  },
  SharesPods: {
    means: "Other protectors count pods of this one. A disruption of such a pod needs the quota of each of them.",
    act: "If two budgets are not meant for the same pods: correct a selector, or give one of them up.",
  },
  PodsVanished: {
    means: "Available pods disappeared in the last hour without a deletion request: etcd may have lost them.",
    act: "docs/runbooks/PodseidonPodsVanished.md.",
  },
  Suspended: {
    means: "Somebody let every disruption pass for a while.",
    act: "kubectl podseidon resume NAME ends it.",
    text: /is suspended\b.*: it does not protect/,
  },
  SourceVanished: {
    means: "The workload is gone, and no deletion ended its promise. Its pods stay protected.",
    act: "Bring the workload back, or give it up: kubectl podseidon release NAME.",
  },
  SourceDeleting: {
    means: "The workload is being deleted while it asks for replicas. Deletion and protection wait.",
    act: "Scale it to zero, or kubectl podseidon release NAME. To undo it: docs/operations.md#delete-a-workload.",
  },
};

const REASONS: Readonly<Record<string, Meaning>> = {
  EnoughAvailable: { means: "The promise is kept.", act: "Nothing." },
  TooFewAvailable: { means: "Fewer pods are available than promised.", act: WAIT_FOR_PODS },
  InvalidSelector: {
    means: "A part of the selector can't be read. The readable part is in force.",
    act: "Correct the selector; the condition's message has the error.",
  },
  DisruptionPossible: { means: "There are more pods than must be available.", act: "Nothing." },
  MinAvailableTooHigh: { means: "minAvailable is at least the number of pods.", act: IMPOSSIBLE },
  PodsMatched: { means: "Pods match the selector.", act: "Nothing." },
  NoPods: { means: "No running pod matches the selector.", act: "Is the selector right, and do its pods run?" },
  CellsCurrent: { means: "Every cell is counted, and its aggregator writes.", act: "Nothing." },
  CellsNotCurrent: {
    means: "The message names the cells that are not counted, on hold, or silent.",
    act: "docs/runbooks/PodseidonCellStale.md.",
  },
  PodsShared: { means: "See SharesPods.", act: "kubectl podseidon why POD shows what each of them says." },
  WithoutDeletion: { means: "See PodsVanished.", act: "docs/runbooks/PodseidonPodsVanished.md." },
  NoneVanished: { means: "No pod has vanished for an hour.", act: "Nothing." },
  NotShared: { means: "No other protector counts its pods any more.", act: "Nothing." },
  Expired: { means: "The suspension ended by itself.", act: "Nothing." },
  NotSuspended: { means: "Somebody ended the suspension.", act: "Nothing." },
  SourceMissing: { means: "See SourceVanished.", act: "kubectl podseidon release NAME gives it up." },
  SourcePresent: { means: "The workload is there.", act: "Nothing." },
  AsksForReplicas: { means: "See SourceDeleting.", act: "Scale to zero, or kubectl podseidon release NAME." },
  NotDeleted: { means: "Nobody deletes the workload.", act: "Nothing." },
};

const ENDS = "The hold ends by itself after the settle period (75 s): docs/runbooks/PodseidonCellOnHold.md.";
const OVERDUE =
  "The hold should have ended after the settle period (75 s), and does not: docs/runbooks/PodseidonCellOnHold.md.";
const HOLDS: Readonly<Record<string, Meaning>> = {
  Behind: { means: "The protector or the cell's count is older than it was: something wrote an old state.", act: ENDS },
  Gone: { means: "The cell's entry in the protector's status disappeared.", act: ENDS },
  NoPosition: { means: "The cell was counted by an aggregator that publishes no position (upstream's).", act: ENDS },
  Recreated: { means: "The protector was deleted, and created again.", act: ENDS },
  Restored: { means: "The protector was lost, and was created again.", act: ENDS },
  CellRemoved: { means: "The cell was removed by remove-cell, and is counted again.", act: ENDS },
  CoreRestored: { means: "The etcd of the core was restored to an older state.", act: ENDS },
  CellRestored: { means: "The etcd of the cell was restored to an older state.", act: ENDS },
  WentBack: { means: "A webhook saw an older version of the protector than it knew.", act: ENDS },
  Replaced: { means: "A webhook saw another protector of the same name.", act: ENDS },
};

const of = (kind: Explained["kind"], meanings: Readonly<Record<string, Meaning>>): readonly Explained[] =>
  Object.entries(meanings).map(([name, meaning]) => ({ name, kind, ...meaning }));

export const EXPLANATIONS: readonly Explained[] = [
  ...of("denial", DENIALS),
  ...of("failure", FAILURES),
  ...of("condition", CONDITIONS),
  ...of("reason of a condition", REASONS),
  ...of("cause of a hold", HOLDS),
];

/** The explanations with this name, in any case; else those whose message is in the text. */
export function explanationsOf(text: string): readonly Explained[] {
  const wanted = text.trim().toLowerCase();
  const named = EXPLANATIONS.filter(({ name }) => name.toLowerCase() === wanted);
  return named.length > 0 ? named : EXPLANATIONS.filter((one) => one.text?.test(text) === true);
}

/** The cause of a stored hold, and how it ends. */
export function holdText(hold: string, isOverdue: boolean): string {
  const [cause = ""] = hold.split("/");
  return `${HOLDS[cause]?.means ?? `${cause}.`} ${isOverdue ? OVERDUE : ENDS}`;
}
