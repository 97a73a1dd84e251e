import type { Decision, DisruptionRequest } from "../../shared/decide/quota.ts";
import type { Pod } from "../../shared/schema/pod.ts";
import type { Operation } from "../../shared/schema/podprotector.ts";

/** What a live read of a pod showed. */
export type LiveRead =
  | { readonly kind: "found"; readonly pod: Pod; readonly sentMs: number }
  /** No pod of this name, or another one than was asked for. */
  | { readonly kind: "gone" }
  | { readonly kind: "failed"; readonly message: string };

/** Why no decision was had although one is possible; HTTP errors, so that failurePolicy decides. Metric labels. */
export type FailureTag =
  /** The core cluster did not answer in time, or with an error. */
  | "core-unavailable"
  /** The core cluster refused the write: permissions, an object that it does not accept. */
  | "core-rejected"
  /** The pod could not be read live. */
  | "cell-unavailable"
  /** A defect of this program in the decision of this one request. */
  | "defect"
  /** Written, perhaps; the deadline came before that was known. The reservation stays and settles (design 5.7). */
  | "deadline";

/** No room, no time, or a core that has just come back from an outage (design 5.4). */
export type OverloadCause = "queue" | "time" | "recovering";

export type ProtectorOutcome =
  | { readonly kind: "allowed"; readonly decision: Extract<Decision, { allowed: true }>; readonly written: boolean }
  | { readonly kind: "refused"; readonly decision: Extract<Decision, { allowed: false }> }
  /** The protector does not exist any more. */
  | { readonly kind: "absent" }
  /** It does not exist any more and was not released: its last known version refuses (design 7). */
  | { readonly kind: "vanished"; readonly uid: string }
  /** Not decided for want of room or time, and nothing was written for it (design 5.8). */
  | { readonly kind: "overloaded"; readonly cause: OverloadCause }
  | { readonly kind: "failed"; readonly tag: FailureTag; readonly message: string }
  /** A roll-back or a re-assertion was written. */
  | { readonly kind: "done" }
  /** The caller went away before anything was written for it. */
  | { readonly kind: "abandoned" }
  /** The live read during the decision showed that there is no such pod any more. */
  | { readonly kind: "podGone" };

interface Waiting {
  readonly arrivedMs: number;
  /** Monotonic; the outcome is there before. */
  readonly deadlineMs: number;
  readonly settle: (outcome: ProtectorOutcome) => void;
}

/** A request for a disruption: decided, and unless it is only asked for, written. */
export interface PendingReserve extends Waiting {
  readonly kind: "reserve";
  request: DisruptionRequest;
  /** A verdict only, nothing is written (dry run; evaluation before several reservations). */
  readonly verdictOnly: boolean;
  /** Monotonic send time of the live read that `request.pod` comes from; undefined when it came with the review. */
  podReadMs: number | undefined;
  /** Reads the pod again, for evictions (design 5.3). */
  readonly reread: ((timeoutMs: number) => Promise<LiveRead>) | undefined;
  /** The caller went away: what was not begun need not be. */
  readonly gone: () => boolean;
  /** The write that carried it last, until that is known not to have been made: it may be in the object whatever is answered. */
  attempt: { readonly decision: Extract<Decision, { allowed: true }>; readonly baseVersion: string } | undefined;
}

/** Takes back what a request wrote (design 5.7). */
export interface PendingRollBack extends Waiting {
  readonly kind: "rollBack";
  readonly cell: string;
  readonly uid: string;
  readonly operation: Operation;
  readonly nonce: string;
}

/** One own reservation that is written again. */
export interface Reassertion {
  readonly request: DisruptionRequest;
  readonly decision: Extract<Decision, { allowed: true }>;
}

/** Own reservations that a restored object does not have any more, and a hold on every cell (design 5.4). */
export interface PendingReassert extends Waiting {
  readonly kind: "reassert";
  readonly reassertions: readonly Reassertion[];
  /** Cells that the object had before the loss. */
  readonly cells: ReadonlySet<string>;
  /** What is written as `hold`. */
  readonly hold: string;
}

export type PendingRequest = PendingReserve | PendingRollBack | PendingReassert;
