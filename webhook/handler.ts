import type { Clock } from "../shared/runtime/clock.ts";
import { chain, type MaybePromise } from "../shared/runtime/maybe-promise.ts";
import type { Pod } from "../shared/schema/pod.ts";
import type { AdmissionCall, CallHandler, HttpReply } from "./http/server.ts";
import { MAX_PIN_MS } from "./limits.ts";
import {
  type AdmissionRequest,
  type AdmissionResponse,
  encodeAdmissionReview,
  parseAdmissionReview,
} from "./request/admission-request.ts";
import type { BypassVerdict } from "./request/bypass.ts";
import { claimsBypass } from "./request/bypass-labels.ts";
import type { CellClient } from "./request/cell-client.ts";
import type { GatedCore } from "./request/counted-gate.ts";
import { requestBudgetMs } from "./request/deadline.ts";
import {
  bindEviction,
  type DisruptionTarget,
  findDisruptionTarget,
  isChange,
  isPodDeletion,
} from "./request/disruption-target.ts";
import { type Exemption, exemptionOf } from "./request/exemption.ts";
import type { FailureTag } from "./reserve/pending.ts";
import type { Disruption, Judgement, Verdict } from "./reserve/pipeline.ts";
import { allowResponse } from "./respond/allow-response.ts";
import { type Blocker, denyResponse, isBusy } from "./respond/deny-response.ts";

/** How a review ended; each is a metric label, registered at zero. */
export const OUTCOMES = [
  "unprotected",
  "exempt",
  "allowed",
  "forced",
  "suspended",
  "denied",
  "busy",
  "dryRunDenied",
  "failed",
  "abandoned",
  "ignored",
  "restartsNothing",
  "bound",
  "gated",
  "notFound",
  "conflict",
  "unbound",
] as const;
export type AdmissionOutcome = (typeof OUTCOMES)[number];

export const REVIEW_KINDS = ["delete", "evict", "change", "bind", "gate", "other"] as const;
export type AdmissionKind = (typeof REVIEW_KINDS)[number];

/** What is known of a finished review, for metrics and the log. */
export interface AdmissionRecord {
  readonly kind: AdmissionKind;
  readonly outcome: AdmissionOutcome;
  readonly durationMs: number;
  readonly cell: string;
  readonly uid: string;
  readonly username: string;
  readonly pod?: { readonly namespace: string; readonly name: string; readonly uid: string };
  readonly exemption?: Exemption;
  /** A force-delete annotation that was there, followed or not. */
  readonly bypass?: BypassVerdict;
  readonly failure?: FailureTag;
  readonly judgements?: readonly Judgement[];
  readonly blockers?: readonly Blocker[];
  readonly message?: string;
  /** Nothing was to happen, whatever the answer. */
  readonly dryRun?: boolean;
}

export interface HandlerOptions {
  readonly cells: ReadonlyMap<string, CellClient>;
  readonly pipeline: { readonly decide: (disruption: Disruption) => MaybePromise<Verdict> };
  /** Where the protectors of new pods are looked up, for the counted gate. */
  readonly cores?: readonly GatedCore[];
  readonly clock: Clock;
  /** Namespace of the project's own pods. */
  readonly ownNamespace: string;
  /** Nothing is refused: verdicts become warnings (design 6). */
  readonly dryRunMode: boolean;
  readonly requireBoundEvictions: boolean;
  /** The force-delete annotation is followed only for those who have the permission. */
  readonly bypassNeedsPermission?: boolean;
  readonly finished: (record: AdmissionRecord) => void;
}

const STATUS_OF_FAILURE: Readonly<Record<FailureTag, number>> = {
  "core-unavailable": 503,
  "cell-unavailable": 503,
  "core-rejected": 500,
  deadline: 504,
  defect: 500,
};

type Ending = Omit<AdmissionRecord, "kind" | "durationMs" | "cell" | "uid" | "username"> & {
  /** Undefined: an HTTP error, so that failurePolicy decides. */
  readonly answer: AdmissionResponse | undefined;
  readonly delivered?: (complete: boolean) => void;
};

/** One call, read. */
interface Given {
  readonly request: AdmissionRequest;
  readonly cell: CellClient;
  readonly call: AdmissionCall;
  readonly arrivedMs: number;
  readonly deadlineMs: number;
}

/** Answers reviews: what is it about, may it pass, what is said (design 6). One per process. */
export class AdmissionHandler {
  readonly #options: HandlerOptions;
  readonly handle: CallHandler = (call) => this.#handle(call);

  constructor(options: HandlerOptions) {
    this.#options = options;
  }

  #handle(call: AdmissionCall): MaybePromise<HttpReply> {
    const { clock, cells } = this.#options;
    const arrivedMs = clock.monotonicMs();
    const deadlineMs = arrivedMs + requestBudgetMs(call.timeout);
    const request = parseAdmissionReview(call.body);
    const cell = cells.get(call.cell);
    if (cell === undefined) return { status: 404, body: `no cell ${JSON.stringify(call.cell)} is configured here` };
    const given: Given = { request, cell, call, arrivedMs, deadlineMs };
    return chain(this.#ending(given), (ending) => this.#reply(given, ending));
  }

  #reply({ request, cell, call, arrivedMs }: Given, ending: Ending): HttpReply {
    const { answer, delivered } = ending;
    // With the answer in it, which nobody there looks at: leaving it out would cost more than the rest of this.
    this.#options.finished({
      ...ending,
      kind: kindOf(request, call),
      durationMs: this.#options.clock.monotonicMs() - arrivedMs,
      cell: cell.id,
      uid: request.uid,
      username: request.user.username,
    });
    if (answer === undefined) {
      return { status: STATUS_OF_FAILURE[ending.failure ?? "defect"], body: ending.message ?? "the review failed" };
    }
    const body = encodeAdmissionReview(request.uid, answer);
    return delivered === undefined ? { status: 200, body } : { status: 200, body, delivered };
  }

  #ending(given: Given): MaybePromise<Ending> {
    const { request, cell, call, deadlineMs } = given;
    if (call.kind === "validate") return this.#review(given);
    if (call.kind === "mutate") return this.#bind(request, cell, deadlineMs);
    return this.#gate(request, cell, call.kind === "gateAll");
  }

  async #gate(request: AdmissionRequest, cell: CellClient, isOptedIn: boolean): Promise<Ending> {
    const { gatePod } = await import("./request/counted-gate.ts");
    const { cores = [], clock, ownNamespace } = this.#options;
    const now = { nowMs: clock.nowMs(), monotonicMs: clock.monotonicMs() };
    const patch = gatePod(request, { cell: cell.id, cores, isOptedIn, ownNamespace, ...now });
    return patch === undefined ? { outcome: "ignored", answer: {} } : { outcome: "gated", answer: { patch } };
  }

  async #bind(request: AdmissionRequest, cell: CellClient, deadlineMs: number): Promise<Ending> {
    const subject = await bindEviction(request, cell, () => this.#leftMs(deadlineMs));
    return subject.kind === "disruption" ? { outcome: "ignored", answer: {} } : this.#inMode(settled(subject));
  }

  #review(given: Given): MaybePromise<Ending> {
    const { request, cell, deadlineMs } = given;
    const subject = findDisruptionTarget(request, cell, this.#options, () => this.#leftMs(deadlineMs));
    return chain(subject, (one) => this.#judge(given, one));
  }

  #judge(given: Given, subject: DisruptionTarget): MaybePromise<Ending> {
    if (subject.kind !== "disruption") return this.#inMode(settled(subject));
    const exemption = exemptionOf(subject.pod, this.#options.ownNamespace);
    // A pending pod can become available before its eviction is committed, which is not bound to a version, or before the containers
    // of a changed one restart: it is pinned if possible.
    const pinned = exemption === "Pending" && subject.operation !== "DELETE";
    if (exemption !== undefined && !pinned) return exempt(subject.pod, exemption);
    const bypass = claimsBypass(subject.pod) ? this.#bypass(subject.pod, given) : undefined;
    return chain(bypass, (verdict) => this.#decide(given, subject, verdict, pinned ? exemption : undefined));
  }

  #decide(
    { cell, call, arrivedMs, deadlineMs }: Given,
    subject: Extract<DisruptionTarget, { kind: "disruption" }>,
    bypass: BypassVerdict | undefined,
    pinned: Exemption | undefined,
  ): MaybePromise<Ending> {
    const { pod } = subject;
    const forced = bypass?.forced === true;
    const untilMs = pinned === undefined ? deadlineMs : Math.min(deadlineMs, arrivedMs + MAX_PIN_MS);
    const disruption: Disruption = {
      ...subject,
      forced,
      cell: cell.id,
      arrivedMs,
      deadlineMs: untilMs,
      gone: call.gone,
    };
    return chain(this.#options.pipeline.decide(disruption), (verdict) => {
      if (pinned !== undefined && verdict.kind === "failed")
        return this.#unpinned(subject, pinned, verdict, deadlineMs);
      if (isHeldBack(verdict) && !disruption.dryRun) cell.markPending?.(pod);
      const { ownNamespace } = this.#options;
      const ending = {
        ...concluded(verdict, disruption, bypass, ownNamespace),
        pod: identityOf(pod),
        dryRun: disruption.dryRun,
      };
      return this.#inMode(bypass === undefined ? ending : { ...ending, bypass }, disruption);
    });
  }

  /** A pod that could not be pinned goes all the same as long as it is what it was: it may have become available meanwhile. */
  #unpinned(
    { pod, reread }: Extract<DisruptionTarget, { kind: "disruption" }>,
    exemption: Exemption,
    verdict: Extract<Verdict, { kind: "failed" }>,
    deadlineMs: number,
  ): MaybePromise<Ending> {
    // A change is committed at the version that was reviewed, or reviewed again.
    if (reread === undefined) return exempt(pod, exemption);
    return reread(Math.max(1, this.#leftMs(deadlineMs))).then((live) => {
      const now = live.kind === "found" ? exemptionOf(live.pod, this.#options.ownNamespace) : undefined;
      if (live.kind === "found" && now !== undefined) return exempt(live.pod, now);
      if (live.kind === "gone") return gone(pod);
      return this.#inMode({ outcome: "failed", failure: verdict.tag, message: verdict.message, answer: undefined });
    });
  }

  async #bypass(pod: Pod, { request: { user }, cell, deadlineMs }: Given): Promise<BypassVerdict> {
    const { judgeBypass } = await import("./request/bypass.ts");
    const { bypassNeedsPermission: needsPermission = false, clock } = this.#options;
    return judgeBypass(pod, { user, cell, nowMs: clock.nowMs(), timeoutMs: this.#leftMs(deadlineMs), needsPermission });
  }

  /** In dry-run mode nothing is held up: what would have been said becomes a warning (design 6). */
  #inMode(ending: Ending, disruption?: Disruption): MaybePromise<Ending> {
    if (!this.#options.dryRunMode || (ending.answer !== undefined && ending.answer.refusal === undefined))
      return ending;
    if (ending.outcome === "notFound" || ending.outcome === "conflict") return ending;
    return this.#asWarning(ending, disruption);
  }

  async #asWarning(ending: Ending, disruption: Disruption | undefined): Promise<Ending> {
    // The pod goes although its protector refused: recorded, so that the next decision knows it.
    if (disruption !== undefined && !disruption.dryRun && ending.blockers !== undefined) {
      await this.#options.pipeline.decide({ ...disruption, forced: true });
    }
    const said = ending.answer?.refusal?.message ?? ending.message ?? "the review failed";
    const auditAnnotations = { ...ending.answer?.auditAnnotations, "dry-run": "true" };
    const { delivered: _, ...rest } = ending;
    return { ...rest, outcome: "dryRunDenied", answer: { warnings: [`dry run: ${said}`], auditAnnotations } };
  }

  #leftMs(deadlineMs: number): number {
    return deadlineMs - this.#options.clock.monotonicMs();
  }
}

function kindOf(request: AdmissionRequest, call: AdmissionCall): AdmissionKind {
  if (call.kind === "mutate") return "bind";
  if (call.kind !== "validate") return "gate";
  if (isPodDeletion(request)) return "delete";
  if (isChange(request)) return "change";
  return request.subResource === "eviction" ? "evict" : "other";
}

function identityOf({ namespace, name, uid }: Pod): NonNullable<AdmissionRecord["pod"]> {
  return { namespace, name, uid };
}

function exempt(pod: Pod, exemption: Exemption): Ending {
  return { outcome: "exempt", exemption, pod: identityOf(pod), answer: {} };
}

function gone({ name }: Pod): Ending {
  return {
    outcome: "notFound",
    answer: { refusal: { code: 404, reason: "NotFound", message: `pods "${name}" not found` } },
  };
}

function settled(subject: Exclude<DisruptionTarget, { kind: "disruption" }>): Ending {
  if (subject.kind === "answer") return { outcome: subject.outcome, answer: subject.answer };
  return { outcome: "failed", failure: "cell-unavailable", message: subject.message, answer: undefined };
}

/** `core/namespace/name`, the way audit annotations and logs name a protector. */
export function protectorId({ core, namespace, name }: Pick<Blocker, "core" | "namespace" | "name">): string {
  return `${core}/${namespace}/${name}`;
}

function concluded(
  verdict: Verdict,
  { pod, operation }: Disruption,
  bypass: BypassVerdict | undefined,
  ownNamespace: string,
): Ending {
  switch (verdict.kind) {
    case "allowed":
      return allowed(verdict.judgements, pod, bypass);
    case "refused": {
      const { blockers, rollBack } = verdict;
      const refused = { operation, namespace: pod.namespace, pod: pod.name };
      const refusal = denyResponse(refused, blockers, ownNamespace);
      const auditAnnotations = {
        "reject-by-podprotector": blockers.map(({ namespace, name }) => `${namespace}/${name}`).join(","),
        decision: blockers.map((blocker) => `${protectorId(blocker)}=${causeOf(blocker)}`).join(","),
        ...bypass?.auditAnnotations,
      };
      const outcome = blockers.every(isBusy) ? "busy" : "denied";
      const ending: Ending = {
        outcome,
        blockers,
        message: refusal.message,
        answer: { refusal, auditAnnotations, ...warned(bypass) },
      };
      // Not before the caller has it: one that gave up may go on (failurePolicy Ignore), so the reservations stay (design 5.7).
      return rollBack === undefined ? ending : { ...ending, delivered: (complete) => complete && rollBack() };
    }
    case "failed":
      return { outcome: "failed", failure: verdict.tag, message: verdict.message, answer: undefined };
    case "podGone":
      return gone(pod);
    case "abandoned":
      return { outcome: "abandoned", failure: "deadline", message: "the caller went away", answer: undefined };
  }
}

/** Something has to be done before the pod goes. */
function isHeldBack(verdict: Verdict): boolean {
  if (verdict.kind !== "refused") return false;
  return verdict.blockers.some(({ why }) => why.kind === "quota" && why.decision.cause === "PreActivity");
}

function warned(bypass: BypassVerdict | undefined): Pick<AdmissionResponse, "warnings"> {
  return bypass === undefined || bypass.warnings.length === 0 ? {} : { warnings: bypass.warnings };
}

function causeOf({ why }: Blocker): string {
  if (why.kind === "owner") return `Probe:${why.result}`;
  return why.kind === "quota" ? why.decision.cause : why.cause;
}

function allowed(judgements: readonly Judgement[], pod: Pod, bypass: BypassVerdict | undefined): Ending {
  if (judgements.length === 0) return { outcome: "unprotected", answer: {} };
  const decision = judgements.map(({ match, reason }) => `${protectorId(match)}=${reason}`).join(",");
  const answer = allowResponse(judgements, pod, decision, bypass);
  if (bypass?.forced === true) return { outcome: "forced", judgements, answer };
  const isSuspended = judgements.some(({ reason }) => reason === "Suspended");
  return { outcome: isSuspended ? "suspended" : "allowed", judgements, answer };
}
