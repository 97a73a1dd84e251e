/**
 * Decides one disruption. A request passes `pipeline` (all protectors), `protector-writer` (one protector) and `batch`
 * (one write). `verdict` combines the decisions of the protectors.
 */

import { classifyPod } from "../../shared/decide/availability/availability.ts";
import {
  allowUnrecorded,
  type Decision,
  type DisruptionRequest,
  decide,
  isPin,
  needsNoQuota,
} from "../../shared/decide/quota.ts";
import type { ProtectorVersion } from "../../shared/decide/state/protector-version.ts";
import { decideLost } from "../../shared/recovery/lost-protector.ts";
import type { Ports } from "../../shared/runtime/clock.ts";
import type { MaybePromise } from "../../shared/runtime/maybe-promise.ts";
import type { Pod } from "../../shared/schema/pod.ts";
import type { ProtectorId } from "../../shared/schema/podprotector.ts";
import { formatMs } from "../../shared/schema/time.ts";
import type { AskOwner } from "../probe/probe-request.ts";
import type { DisruptionTarget } from "../request/disruption-target.ts";
import type { CallerShares, Requester } from "./caller-shares.ts";
import { matchesOf, versionOf } from "./matching-protectors.ts";
import type { Nonces } from "./nonces.ts";
import { OwnerConsent } from "./owner-consent.ts";
import type { TogetherToken } from "./pending-queue.ts";
import type { ProtectorLookup, ProtectorMatch } from "./protector-cache.ts";
import { MAX_REREAD_MS } from "./protector-writer.ts";
import {
  type Allowance,
  type DecisionOf,
  idOf,
  type ProtectorDecision,
  type Undecided,
  type Verdict,
  verdictOf,
  verdictOfEach,
} from "./verdict.ts";

export interface Disruption extends Omit<DisruptionTarget, "kind"> {
  readonly cell: string;
  /** The user has the permission to choose the criterion, whatever a protector allows. */
  readonly criterionPermitted?: boolean;
  readonly caller?: Requester;
  /** Allowed and recorded, whatever quota says. */
  readonly forced: boolean;
  /** The same, but only by protectors that were made from PodUnavailableBudgets. */
  readonly noProtect?: boolean;
  readonly arrivedMs: number;
  /** Monotonic. */
  readonly deadlineMs: number;
  readonly isCallerGone: () => boolean;
  /**
   * Only decides, together with all disruptions of this token: all are allowed, or all denied. Owners are not asked.
   */
  readonly together?: TogetherToken;
}

interface PipelineOptions {
  readonly cores: readonly ProtectorLookup[];
  readonly ports: Ports;
  readonly nonces: Nonces;
  readonly settleMs: number;
  /** Why nothing can be decided for a cell yet, because its lost protectors are not known; undefined otherwise. */
  readonly cellProblem?: (cell: string) => string | undefined;
  /** Which callers leave a share of the quota to others. */
  readonly callers?: Pick<CallerShares, "keepsShare" | "reserved"> | undefined;
  /** Asks the owners of workloads; without it, a protector with a probe denies. */
  readonly askOwner?: AskOwner | undefined;
}

/** A reservation that one protector holds for this disruption. */
interface Written {
  readonly match: ProtectorMatch;
  readonly request: DisruptionRequest;
  /** The reservation has made its record paid. */
  readonly hasPaid: boolean;
}

/** The protectors that have to reserve, and the live read of the pod that they decide on. */
interface Round {
  readonly request: DisruptionRequest;
  readonly disruption: Disruption;
  readonly due: readonly ProtectorMatch[];
}

/** Time that a roll-back may take. A reservation that it does not remove settles. */
const ROLL_BACK_MS = 30_000;

/** Time to record a disruption that is allowed even without a record. */
const MAX_RECORD_MS = 1_000;

/** A live read that was sent so shortly before the response need not be repeated. */
export const RECENT_READ_MS = 250;

/** Reasons that hold only for now: the pod may become available. */
const PASSING: ReadonlySet<string> = new Set<Allowance["decision"]["decision"]["reason"]>(["Unavailable", "Pending"]);

function byCoreNamespaceName(a: ProtectorId, b: ProtectorId): number {
  if (a.core !== b.core) return a.core < b.core ? -1 : 1;
  if (a.namespace !== b.namespace) return a.namespace < b.namespace ? -1 : 1;
  return a.name < b.name ? -1 : a.name > b.name ? 1 : 0;
}

/** The decision of a lost protector, by its last version (S11 of docs/design.md#invariants). */
function decisionOfLost(version: ProtectorVersion, request: DisruptionRequest): ProtectorDecision {
  const decision = decideLost(version.state, request);
  return decision === undefined
    ? { kind: "lost", uid: version.uid }
    : { kind: "allowed", decision, version, written: false };
}

/** True for a decision that allows because of a live read of the pod: the pod may have become available since. */
function isByRead(decision: Decision | undefined): boolean {
  return decision?.allowed === true && (isPin(decision) || PASSING.has(decision.reason));
}

/** The decision on `request` by the newest version of the protector, or by the last version of a lost one. */
function decisionNow(match: ProtectorMatch, request: DisruptionRequest): Decision | undefined {
  const version = versionOf(match);
  if (version === undefined) return undefined;
  const isLost = match.lost !== undefined || match.writer.newest() === undefined;
  return isLost ? decideLost(version.state, request) : decide(version.state, request);
}

/**
 * All protectors of all cores must agree (docs/design.md#several-protectors). They are evaluated first, then reserved
 * in the order of core, namespace and name, and rolled back by nonce when a later one denies.
 */
export class Pipeline {
  readonly #options: PipelineOptions;

  constructor(options: PipelineOptions) {
    this.#options = options;
  }

  /**
   * True when no core has a protector, lost or not. False while a cache is old, or the cell's lost protectors are not
   * known.
   */
  protectsNothing(cell: string): boolean {
    const nowMs = this.#nowMs();
    if (this.#options.cellProblem?.(cell) !== undefined) return false;
    return this.#options.cores.every((core) => core.isEmpty === true && core.problem(nowMs) === undefined);
  }

  /**
   * True when the newest known version of a protector counts the pod by a criterion other than `Available`. Such a pod
   * is not exempt although it is Pending or not Ready.
   */
  countsUnready(pod: Pod): boolean {
    const counts = (match: ProtectorMatch): boolean => {
      const spec = versionOf(match)?.state.spec;
      // Labels alone do not exempt a pod: the count may still include it.
      return spec !== undefined && spec.healthCriterion !== "Available" && classifyPod(pod, spec) === "Available";
    };
    return this.#options.cores.some((core) => core.match(pod).some(counts));
  }

  /** True when protectors match, and the newest known version of each enforces nothing, however old that is. */
  onlyWarns(pod: Pod): boolean {
    const matches = this.#options.cores.flatMap((core) => core.match(pod));
    return matches.length > 0 && matches.every((match) => versionOf(match)?.state.spec.warnsOnly === true);
  }

  protectorsOf(pod: Pod): number {
    return this.#options.cores.reduce((sum, core) => sum + core.match(pod).length, 0);
  }

  /** Returns at once where no protector matches, else resolves before the deadline. Neither throws nor rejects. */
  decide(disruption: Disruption): MaybePromise<Verdict> {
    const nowMs = this.#nowMs();
    const matches: ProtectorMatch[] = [];
    let problem = this.#options.cellProblem?.(disruption.cell);
    for (const core of this.#options.cores) {
      const coreProblem = core.problem(nowMs);
      const found = matchesOf(core, disruption);
      // A lost protector denies whether its core is reachable or not. The others need a current cache.
      matches.push(...(coreProblem === undefined ? found : found.filter(({ lost }) => lost !== undefined)));
      problem ??= coreProblem;
    }
    if (matches.length === 0 && problem === undefined) return { kind: "allowed", decisions: [] };
    return this.#decideAll(disruption, matches, problem);
  }

  async #decideAll(disruption: Disruption, matches: ProtectorMatch[], problem: string | undefined): Promise<Verdict> {
    const request = this.#request(disruption);
    if (problem !== undefined) {
      // A denial by another core stands. An approval does not: the unreachable core might have denied.
      const verdict = await this.#evaluate(request, disruption, matches);
      return verdict.kind === "denied" ? verdict : { kind: "failed", tag: "core-unavailable", message: problem };
    }
    matches.sort(byCoreNamespaceName);
    const consent = new OwnerConsent(disruption, this.#options.ports.clock, this.#options.askOwner);
    // A disruption that is allowed by annotation, or in dry-run mode, is allowed whatever an owner says.
    const isProbed = !disruption.forced && matches.some((match) => versionOf(match)?.object.spec.probe !== undefined);
    if (disruption.together !== undefined) return this.#evaluate(request, disruption, matches);
    if (disruption.dryRun || matches.length > 1 || isProbed) {
      let verdict = await this.#evaluate(request, disruption, matches);
      if (verdict.kind === "allowed" && isProbed) verdict = await this.#askOwners(consent, verdict);
      if (verdict.kind !== "allowed" || disruption.dryRun) return verdict;
    }
    return this.#reserve(request, disruption, matches, consent);
  }

  #request(disruption: Disruption): DisruptionRequest {
    const { cell, operation, pod, forced, noProtect, isResize, criterion, criterionPermitted = false } = disruption;
    const { mayGoUnhealthy } = disruption;
    const { ports, nonces, settleMs } = this.#options;
    const nowMs = ports.clock.nowMs();
    return {
      ...{ cell, operation, pod, forced, criterion, criterionPermitted },
      ...(noProtect === true ? { noProtect } : {}),
      ...(isResize === true ? { isResize } : {}),
      ...(mayGoUnhealthy === true ? { mayGoUnhealthy } : {}),
      nonce: nonces.next(),
      startTime: formatMs(nowMs),
      staleRefreshBefore: formatMs(nowMs - 2 * settleMs),
    };
  }

  /** The verdict of all protectors; nothing is written. */
  async #evaluate(
    request: DisruptionRequest,
    disruption: Disruption,
    matches: readonly ProtectorMatch[],
  ): Promise<Verdict> {
    // Those of several pods together are one batch.
    const atOnce = disruption.together && matches.length;
    return await verdictOfEach(matches, (match) => this.#evaluateOne(request, disruption, match), atOnce);
  }

  /**
   * An approval may rest on the newest version known. A denial needs a fresh read (L6 of docs/design.md#invariants).
   */
  async #evaluateOne(given: DisruptionRequest, from: Disruption, protector: ProtectorMatch): Promise<DecisionOf> {
    const request = this.#sharing(given, from, protector);
    const { lost, writer } = protector;
    if (lost !== undefined) return { protector, decision: decisionOfLost(lost, request) };
    const version = writer.newest();
    const isAlone = from.together === undefined;
    const decision = version !== undefined && isAlone ? decide(version.state, request) : undefined;
    if (version === undefined || decision?.allowed !== true)
      return { protector, decision: await this.#submit(request, from, protector, true) };
    return { protector, decision: { kind: "allowed", decision, version, written: false } };
  }

  async #askOwners(consent: OwnerConsent, verdict: Extract<Verdict, { kind: "allowed" }>): Promise<Verdict> {
    const answers = verdict.decisions.map(({ protector, decision: { decision, version } }) =>
      consent.denialBy(protector, version.object, decision.reason),
    );
    const denials = (await Promise.all(answers)).filter((denial) => denial !== undefined);
    return denials.length === 0 ? verdict : verdictOf(denials);
  }

  /** Reserves in one protector after the other, until one denies or fails. */
  async #reserve(
    request: DisruptionRequest,
    disruption: Disruption,
    matches: readonly ProtectorMatch[],
    consent: OwnerConsent,
  ): Promise<Verdict> {
    const written: Written[] = [];
    const decisions = new Map<ProtectorMatch, ProtectorDecision>();
    let round: Round = { request, disruption, due: matches };
    do {
      for (const match of round.due) {
        const request = this.#sharing(round.request, round.disruption, match);
        let decision = await this.#submit(request, round.disruption, match, false);
        if (decision.kind === "allowed") {
          const { write } = decision.decision;
          const hasPaid = write !== "none" && write.pays === true;
          if (decision.written) written.push({ match, request: round.request, hasPaid });
          this.#watch(match, round.disruption, decision);
          if (consent.isMissing(match, versionOf(match)?.object, decision.decision.reason))
            decision = { kind: "overloaded", cause: "time" };
        }
        decisions.set(match, decision);
        if (decision.kind !== "allowed" && decision.kind !== "absent") return this.#verdict(decisions, written);
      }
      const next = await this.#confirmPins(round, decisions);
      if (next.kind !== "round") return next;
      round = next;
    } while (round.due.length > 0);
    return this.#verdict(decisions, written);
  }

  /**
   * An eviction that is allowed because its pod is not available can be committed at any later version of the pod.
   * Where the writes took so long that the live read is old, the pod is read again. Each protector that counts the pod
   * as available now decides again: the eviction needs quota like any other. A lost protector has no quota, so it
   * denies.
   */
  async #confirmPins(
    { request, disruption }: Round,
    decisions: ReadonlyMap<ProtectorMatch, ProtectorDecision>,
  ): Promise<(Round & { readonly kind: "round" }) | Undecided> {
    const { podReadMs, reread, deadlineMs } = disruption;
    const byRead = [...decisions].filter(([, one]) => one.kind === "allowed" && isByRead(one.decision));
    const nowMs = this.#nowMs();
    const isRecent = reread === undefined || podReadMs === undefined || nowMs - podReadMs < RECENT_READ_MS;
    if (byRead.length === 0 || isRecent) return { kind: "round", request, disruption, due: [] };
    const live = await reread(Math.max(1, Math.min(MAX_REREAD_MS, deadlineMs - nowMs)));
    if (live.kind === "gone") return { kind: "podGone" };
    if (live.kind === "failed") return { ...live, tag: "cell-unavailable" };
    // Another nonce: records already have the first one, whatever the result of the next write is.
    const again = { ...request, pod: live.pod, nonce: this.#options.nonces.next() };
    const due = byRead.map(([match]) => match).filter((match) => !isByRead(decisionNow(match, again)));
    return { kind: "round", request: again, disruption: { ...disruption, podReadMs: live.sentMs }, due };
  }

  #watch(
    { writer, ...id }: ProtectorMatch,
    disruption: Disruption,
    { decision, written }: Allowance["decision"],
  ): void {
    if (!written || decision.reason !== "Reserved" || disruption.caller?.address === undefined) return;
    this.#options.callers?.reserved(idOf(id), disruption.caller, disruption, () => writer.newest());
  }

  #sharing(request: DisruptionRequest, { caller }: Disruption, match: ProtectorMatch): DisruptionRequest {
    const keepsShare = caller && this.#options.callers?.keepsShare(idOf(match), caller);
    return keepsShare ? { ...request, keepsShare } : request;
  }

  async #submit(
    request: DisruptionRequest,
    from: Disruption,
    match: ProtectorMatch,
    decideOnly: boolean,
  ): Promise<ProtectorDecision> {
    if (match.lost !== undefined) return decisionOfLost(match.lost, request);
    const version = match.writer.newest();
    if (version === undefined || !needsNoQuota(version.state, request))
      return await this.#decideBy(match, request, from, decideOnly);
    // Allowed whatever the counts say, and recorded if the write succeeds in time.
    const deadlineMs = Math.min(from.deadlineMs, this.#nowMs() + MAX_RECORD_MS);
    const decision = await this.#decideBy(match, request, { ...from, deadlineMs }, decideOnly);
    // By the newest version: the protector may have changed meanwhile.
    const now = match.writer.newest() ?? version;
    const isUnrecorded = decision.kind === "failed" || decision.kind === "overloaded";
    if (!isUnrecorded || !needsNoQuota(now.state, request)) return decision;
    return { kind: "allowed", decision: allowUnrecorded(now.state, request), version: now, written: false };
  }

  async #decideBy(
    { writer, lastVersion }: ProtectorMatch,
    request: DisruptionRequest,
    from: Disruption,
    decideOnly: boolean,
  ): Promise<ProtectorDecision> {
    const { podReadMs, reread, arrivedMs, deadlineMs, isCallerGone, together } = from;
    const decision = await new Promise<ProtectorDecision>((settle) => {
      writer.submit({
        kind: "reserve",
        ...{ request, decideOnly, together, podReadMs, reread, arrivedMs, deadlineMs, isCallerGone, settle },
        attempt: undefined,
      });
    });
    const lost = decision.kind === "absent" ? lastVersion?.() : undefined;
    return lost === undefined ? decision : decisionOfLost(lost, request);
  }

  #verdict(found: ReadonlyMap<ProtectorMatch, ProtectorDecision>, written: readonly Written[]): Verdict {
    const decisions = [...found].map(([protector, decision]) => ({ protector, decision }));
    const rollBack = written.length === 0 ? undefined : (): void => this.#rollBack(written);
    return verdictOf(decisions, rollBack);
  }

  #rollBack(written: readonly Written[]): void {
    const arrivedMs = this.#nowMs();
    const deadlineMs = arrivedMs + ROLL_BACK_MS;
    for (const { match, request, hasPaid } of written) {
      const { cell, operation, nonce, pod } = request;
      match.writer.submit({ kind: "rollBack", cell, uid: pod.uid, operation, nonce, hasPaid, arrivedMs, deadlineMs });
    }
  }

  #nowMs(): number {
    return this.#options.ports.clock.monotonicMs();
  }
}
