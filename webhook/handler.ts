/**
 * Handles one admission request, from its body to its response. `http/` reads the body, `request/` finds the pod,
 * `reserve/` decides by the protectors and reserves quota, `respond/` words the response; here they are joined.
 */
import { isProtectedFrom, preActivitiesOf } from "../shared/decide/overrides.ts";
import type { Clock } from "../shared/runtime/clock.ts";
import { chain, type MaybePromise } from "../shared/runtime/maybe-promise.ts";
import type { Pod } from "../shared/schema/pod.ts";
import type { AdmissionCall, CallHandler, HttpResponse } from "./http/call.ts";
import type { NodeDeletion } from "./node-handler.ts";
import { type AdmissionRequest, parseAdmissionReview } from "./request/admission-request.ts";
import type { BypassResult } from "./request/bypass.ts";
import type { CellClient } from "./request/cell-client.ts";
import type { GateCore } from "./request/counted-gate.ts";
import { requestBudgetMs } from "./request/deadline.ts";
import {
  type DisruptionTarget,
  findDisruptionTarget,
  isInPlaceChange,
  isNode,
  isPodDeletion,
  isStatusWrite,
  type NoTarget,
  type TargetRules,
} from "./request/disruption-target.ts";
import { bindEviction } from "./request/evict-precondition.ts";
import { claimsBypass, type Exemption, exemptionOf } from "./request/exemption.ts";
import { ReviewedDeletions } from "./request/reviewed-deletions.ts";
import type { Disruption } from "./reserve/pipeline.ts";
import type { Allowance, Verdict } from "./reserve/verdict.ts";
import {
  type AdmissionKind,
  type AdmissionRecord,
  type AdmissionResponse,
  encodeAdmissionReview,
} from "./respond/admission-response.ts";
import type { DenialContext } from "./respond/denial-outlook.ts";
import { heldBack } from "./respond/deny-status.ts";
import {
  failed,
  isWarningInDryRun,
  responseToExempt,
  responseToVerdict,
  responseWithoutTarget,
} from "./respond/responses.ts";
import { type SingleAttempts, withRetryAfter } from "./respond/single-attempt.ts";

/**
 * Milliseconds to pin a pending pod, which is allowed without a pin, too. The rest of the deadline is for a live read
 * of whether the pod is still pending.
 */
export const MAX_PIN_MS = 3_000;

export interface HandlerOptions extends TargetRules {
  readonly cells: ReadonlyMap<string, CellClient>;
  readonly pipeline: NodeDeletion["pipeline"];
  /** Where the protectors of new pods are looked up, for the counted gate. */
  readonly cores?: readonly GateCore[];
  readonly clock: Clock;
  /** How long a hold lasts, for the text of a denial. */
  readonly settleMs?: number;
  /** Namespace of the project's own pods. */
  readonly ownNamespace: string;
  /** Dry-run mode: every denial becomes a warning. */
  readonly dryRunMode: boolean;
  /** False to let nodes be deleted without asking about their pods. */
  readonly reviewsNodes?: boolean;
  /** Follows the force-delete annotation only for users with the permission. */
  readonly bypassNeedsPermission?: boolean;
  /** Callers whose clients are told to repeat a denied deletion. */
  readonly singleAttempts: SingleAttempts;
  readonly finished: (record: AdmissionRecord) => void;
}

/** One call, parsed. */
interface ParsedCall {
  readonly request: AdmissionRequest;
  readonly cell: CellClient;
  readonly call: AdmissionCall;
  readonly arrivedMs: number;
  readonly deadlineMs: number;
}

export class AdmissionHandler {
  readonly #options: HandlerOptions;
  readonly #reviewedNodes = new ReviewedDeletions();
  readonly handle: CallHandler = (call) => this.#handle(call);

  constructor(options: HandlerOptions) {
    this.#options = options;
  }

  #handle(call: AdmissionCall): MaybePromise<HttpResponse> {
    const { clock, cells } = this.#options;
    const arrivedMs = clock.monotonicMs();
    const deadlineMs = arrivedMs + requestBudgetMs(call.timeout);
    const request = parseAdmissionReview(call.body);
    const cell = cells.get(call.cell);
    if (cell === undefined) return { status: 404, body: `no cell ${JSON.stringify(call.cell)} is configured here` };
    const parsed: ParsedCall = { request, cell, call, arrivedMs, deadlineMs };
    return chain(this.#respond(parsed), (response) => this.#finish(parsed, response));
  }

  #finish({ request, cell, call, arrivedMs }: ParsedCall, found: AdmissionResponse): HttpResponse {
    const caller = { kind: kindOf(request, call), username: request.user.username };
    const response = withRetryAfter(found, caller, this.#options.singleAttempts);
    const { errorStatus, delivered, message = "the admission request failed" } = response;
    this.#options.finished({
      ...response,
      ...caller,
      durationMs: this.#options.clock.monotonicMs() - arrivedMs,
      cell: cell.id,
      uid: request.uid,
      oldObject: request.oldObject,
    });
    if (errorStatus !== undefined) return { status: errorStatus, body: message };
    const body = encodeAdmissionReview(request.uid, response);
    return delivered === undefined ? { status: 200, body } : { status: 200, body, delivered };
  }

  #respond(parsed: ParsedCall): MaybePromise<AdmissionResponse> {
    const { request, cell, call, deadlineMs } = parsed;
    const leftMs = (): number => this.#leftMs(deadlineMs);
    if (call.kind === "mutate") return this.#bind(parsed, leftMs);
    if (call.kind !== "validate") return this.#gate(request, cell, call.kind === "gateAll");
    if (isNode(request)) return this.#options.reviewsNodes === false ? { outcome: "ignored" } : this.#node(parsed);
    const target = findDisruptionTarget(request, cell, this.#options, leftMs);
    return chain(target, (found) => this.#validate(parsed, found));
  }

  async #bind({ request, cell }: ParsedCall, leftMs: () => number): Promise<AdmissionResponse> {
    return this.#inMode(responseWithoutTarget(await bindEviction(request, cell, leftMs)));
  }

  async #node(parsed: ParsedCall): Promise<AdmissionResponse> {
    const { handleNodeDeletion } = await import("./node-handler.ts");
    const { pipeline } = this.#options;
    const { response, disruptions } = await handleNodeDeletion({
      ...{ ...parsed, pipeline, context: this.#denialContext(parsed.cell.id), isCallerGone: parsed.call.isCallerGone },
      ...{ address: parsed.call.address, reviewed: this.#reviewedNodes },
      leftMs: () => this.#leftMs(parsed.deadlineMs),
      bypassOf: async (pod) => (claimsBypass(pod) ? overrides(await this.#bypass(pod, parsed, true)) : NOT_FORCED),
    });
    return this.#inMode(response, disruptions);
  }

  #denialContext(cell: string, username?: string): DenialContext {
    const { ownNamespace, cores = [], clock, settleMs = 0 } = this.#options;
    return { ownNamespace, cell, hasSeveralCores: cores.length > 1, nowMs: clock.nowMs(), settleMs, username };
  }

  async #gate(request: AdmissionRequest, cell: CellClient, isOptedIn: boolean): Promise<AdmissionResponse> {
    const { gatePod } = await import("./request/counted-gate.ts");
    const { cores = [], clock, ownNamespace } = this.#options;
    const now = { nowMs: clock.nowMs(), monotonicMs: clock.monotonicMs() };
    const patch = gatePod(request, { cell: cell.id, cores, isOptedIn, ownNamespace, ...now });
    return patch === undefined ? { outcome: "ignored" } : { outcome: "gated", patch };
  }

  #validate(parsed: ParsedCall, target: DisruptionTarget | NoTarget): MaybePromise<AdmissionResponse> {
    if (target.kind !== "disruption") return this.#inMode(responseWithoutTarget(target));
    const { pod, operation } = target;
    if (target.mayGoUnhealthy === true && !this.#countsUnready(pod)) return { outcome: "ignored" };
    const exemption = this.#exemptionOf(pod);
    // A pending pod may become available before its eviction is committed, because an eviction names no version of the
    // pod, or before a change restarts its containers. So the pod is pinned if possible, and always where the change
    // ends it later.
    const isRecorded = exemption === "Pending" && operation !== "DELETE";
    const { isDelayed = false, isUnbound = false } = target;
    if (exemption !== undefined && !isRecorded && !isUnbound) return responseToExempt(pod);
    const isPinned = isRecorded && !isDelayed && !isUnbound;
    const bypass = claimsBypass(pod) ? this.#bypass(pod, parsed, target.podReadMs !== undefined) : undefined;
    return chain(bypass, (result) =>
      chain(this.#mayChooseCriterion(target, parsed), (criterionPermitted) =>
        this.#decide(parsed, target, { bypass: result, criterionPermitted, isPinned }),
      ),
    );
  }

  /** A Pending pod is not exempt where a protector counts it. */
  #exemptionOf(pod: Pod): Exemption | undefined {
    const exemption = exemptionOf(pod, this.#options.ownNamespace);
    return exemption === "Pending" && this.#countsUnready(pod) ? undefined : exemption;
  }

  #countsUnready(pod: Pod): boolean {
    return this.#options.pipeline.countsUnready?.(pod) === true;
  }

  async #bypass(pod: Pod, { request, cell, call, deadlineMs }: ParsedCall, isLive: boolean): Promise<BypassResult> {
    const { checkBypass } = await import("./request/bypass.ts");
    const { bypassNeedsPermission: needsPermission = false, clock } = this.#options;
    const caller = { user: request.user, address: call.address, timeoutMs: this.#leftMs(deadlineMs) };
    return checkBypass(pod, { ...caller, cell, nowMs: clock.nowMs(), needsPermission, isLive });
  }

  /**
   * Whether the user may ask for a health criterion that a protector does not allow. The permission is the one to
   * bypass.
   */
  #mayChooseCriterion(
    { criterion, pod }: DisruptionTarget,
    { request: { user }, cell, call, deadlineMs }: ParsedCall,
  ): MaybePromise<boolean> {
    if (criterion === "Available" || this.#options.bypassNeedsPermission !== true) return false;
    return chain(
      cell.mayBypass?.(user, pod.namespace, this.#leftMs(deadlineMs), call.address),
      (permission) => permission === "allowed",
    );
  }

  #decide(
    parsed: ParsedCall,
    target: DisruptionTarget,
    { bypass, criterionPermitted, isPinned }: Permissions,
  ): MaybePromise<AdmissionResponse> {
    const { request, cell, call, arrivedMs, deadlineMs } = parsed;
    const disruption: Disruption = {
      ...target,
      criterionPermitted,
      ...(bypass === undefined ? NOT_FORCED : overrides(bypass)),
      dryRun: target.dryRun || target.isUnbound === true,
      cell: cell.id,
      caller: { address: call.address, username: request.user.username },
      arrivedMs,
      deadlineMs: isPinned ? Math.min(deadlineMs, arrivedMs + MAX_PIN_MS) : deadlineMs,
      isCallerGone: call.isCallerGone,
    };
    return chain(this.#options.pipeline.decide(disruption), (verdict) => {
      if (isPinned && verdict.kind === "failed") return this.#unpinned(target, verdict, deadlineMs);
      // Where a core is out of reach, nobody knows a protector that would let it go.
      const preActivityDecides =
        verdict.kind === "failed"
          ? this.#options.pipeline.onlyWarns?.(target.pod) !== true
          : isUncovered(verdict, target);
      const isHeldBack = preActivityDecides && bypass?.forced !== true && holdsUncovered(target);
      if ((isHeldBack || waitsForPreActivity(verdict)) && !target.dryRun) cell.markPending?.(target.pod);
      if (isHeldBack) return this.#inMode(heldBack(target, bypass));
      if (target.isUnbound === true && (verdict.kind === "allowed" || verdict.kind === "denied")) {
        const mayGo = verdict.kind === "allowed" && !verdict.decisions.some(mayDeny);
        // Again, with its record.
        if (mayGo) return this.#validate(parsed, { ...target, isUnbound: false });
        // Another pod of the name may be evicted in its place. A platform may leave namespaces out of binding.
        const { namespace, name } = target.pod;
        const unbound = responseWithoutTarget({ kind: "unbound", namespace, name });
        return this.#inMode({ ...unbound, decisions: [] }, [{ ...disruption, dryRun: target.dryRun }]);
      }
      const context = (): DenialContext => this.#denialContext(cell.id, request.user.username);
      const response = responseToVerdict(verdict, target, bypass, context);
      return chain(this.#worded(response, verdict, target, cell.id), (worded) => this.#inMode(worded, [disruption]));
    });
  }

  /** Adds the warnings that few responses need, from modules that are loaded on first use. */
  #worded(
    response: AdmissionResponse,
    verdict: Verdict,
    target: DisruptionTarget,
    cell: string,
  ): MaybePromise<AdmissionResponse> {
    const { criterion } = target;
    const decisions = verdict.kind === "allowed" ? verdict.decisions : [];
    const warned = decisions.some(({ decision }) => decision.decision.instead !== undefined)
      ? import("./respond/not-enforced.ts").then(({ withDenials }) =>
          withDenials(response, decisions, target, this.#denialContext(cell)),
        )
      : response;
    if (criterion === "Available") return warned;
    return chain(warned, (told) =>
      import("./respond/health-criterion.ts").then(({ withCriterion }) => withCriterion(told, criterion)),
    );
  }

  /**
   * Allows a pod that could not be pinned only if a live read finds it exempt: it may have become available meanwhile.
   */
  #unpinned(
    { pod, reread }: DisruptionTarget,
    { tag, message }: Extract<Verdict, { kind: "failed" }>,
    deadlineMs: number,
  ): MaybePromise<AdmissionResponse> {
    // An in-place change is committed at this version of the pod, or kube-apiserver asks again.
    if (reread === undefined) return responseToExempt(pod);
    return reread(Math.max(1, this.#leftMs(deadlineMs))).then((live) => {
      if (live.kind === "gone") return responseWithoutTarget({ kind: "notFound", name: pod.name });
      const isExempt = live.kind === "found" && this.#exemptionOf(live.pod) !== undefined;
      return isExempt ? responseToExempt(live.pod) : this.#inMode(failed(tag, message));
    });
  }

  /** Allows a denied disruption with a warning, and records its reservation, so that the next decision counts it. */
  async #warned(response: AdmissionResponse, disruptions: readonly Disruption[]): Promise<AdmissionResponse> {
    const recorded = response.decisions === undefined ? [] : disruptions.filter(({ dryRun }) => !dryRun);
    await Promise.all(recorded.map((one) => this.#options.pipeline.decide({ ...one, forced: true })));
    const { asWarning } = await import("./respond/dry-run.ts");
    return asWarning(response);
  }

  #inMode(response: AdmissionResponse, disruptions: readonly Disruption[] = []): MaybePromise<AdmissionResponse> {
    if (!this.#options.dryRunMode || !isWarningInDryRun(response)) return response;
    return this.#warned(response, disruptions);
  }

  #leftMs(deadlineMs: number): number {
    return deadlineMs - this.#options.clock.monotonicMs();
  }
}

function kindOf(request: AdmissionRequest, call: AdmissionCall): AdmissionKind {
  if (call.kind === "mutate") return "bind";
  if (call.kind !== "validate") return "gate";
  if (isPodDeletion(request)) return "delete";
  if (isInPlaceChange(request)) return "change";
  if (isStatusWrite(request)) return "status";
  if (isNode(request)) return "node";
  return request.subResource === "eviction" ? "evict" : "other";
}

/** What the caller may do beyond what the protectors allow. */
interface Permissions {
  readonly bypass: BypassResult | undefined;
  /** May ask for another health criterion. */
  readonly criterionPermitted: boolean;
  /** The pod is pending and changes: it is allowed without a pin, too. */
  readonly isPinned: boolean;
}

const NOT_FORCED = { forced: false } as const;

function overrides({ forced, noProtect }: BypassResult): Pick<Disruption, "forced" | "noProtect"> {
  return noProtect === true ? { forced, noProtect } : { forced };
}

/** No protector asks for the operation, suspended or not. */
function isUncovered(verdict: Verdict, target: DisruptionTarget): boolean {
  if (verdict.kind !== "allowed") return false;
  return verdict.decisions.every(
    ({ decision: { decision, version } }) =>
      decision.reason === "NotProtected" || !isProtectedFrom(version.state, target),
  );
}

/** The protector enforces its decisions on the operation. One that is suspended may do so before the pod is gone. */
function mayDeny({ decision: { decision, version } }: Allowance): boolean {
  return !version.state.spec.warnsOnly && decision.reason !== "NotProtected";
}

/** As with x-pdb, pre-activities deny the deletion or eviction of a pod even if no protector covers it. */
function holdsUncovered({ pod, operation, done }: DisruptionTarget): boolean {
  // Neither a status write that ends the pod, nor an in-place change.
  const isDirect = operation !== "UPDATE" && done === undefined;
  return isDirect && pod.phase !== "Pending" && preActivitiesOf(pod).length > 0;
}

function waitsForPreActivity(verdict: Verdict): boolean {
  if (verdict.kind !== "denied") return false;
  return verdict.decisions.some(
    ({ decision }) => decision.kind === "denied" && decision.decision.cause === "PreActivity",
  );
}
