import { type Decision, type DisruptionRequest, decide } from "../../shared/decide/quota.ts";
import type { ProtectorVersion } from "../../shared/decide/state/protector-version.ts";
import { decideLost } from "../../shared/recovery/lost-protector.ts";
import type { Ports } from "../../shared/runtime/clock.ts";
import type { MaybePromise } from "../../shared/runtime/maybe-promise.ts";
import type { Pod } from "../../shared/schema/pod.ts";
import type { Operation } from "../../shared/schema/podprotector.ts";
import { formatMs } from "../../shared/schema/time.ts";
import { MAX_REREAD_MS } from "../limits.ts";
import { type AskOwner, type OwnerAnswer, type OwnerQuestion, questionOf } from "../probe/owner.ts";
import type { Criterion } from "../request/disruption-target.ts";
import type { Blocker } from "../respond/deny-response.ts";
import type { Nonces } from "./nonces.ts";
import type { FailureTag, LiveRead, ProtectorOutcome } from "./pending.ts";
import type { ProtectorWriter } from "./protector-writer.ts";

/** One protector that covers the pod of a review. */
export interface ProtectorMatch {
  readonly core: string;
  readonly namespace: string;
  readonly name: string;
  readonly slot: ProtectorWriter;
  /** The last known version, when it vanished without a release (design 7). */
  readonly ghost?: ProtectorVersion | undefined;
  /** The same, asked after a read has found nothing; undefined when its end was meant. */
  readonly absent?: () => ProtectorVersion | undefined;
}

/** One core cluster, as the pipeline sees it. */
export interface ProtectorLookup {
  readonly name: string;
  /** Why no decision can rest on this core's cache now; undefined when it is current (design 5.4). */
  problem(nowMs: number): string | undefined;
  /** The protectors whose selector covers the pod. */
  match(pod: Pod): ProtectorMatch[];
}

/** A disruption to be decided. */
export interface Disruption {
  readonly cell: string;
  readonly operation: Operation;
  readonly pod: Pod;
  readonly podReadMs: number | undefined;
  readonly reread: ((timeoutMs: number) => Promise<LiveRead>) | undefined;
  /** Recorded and let through, whatever the quota is. */
  readonly forced: boolean;
  readonly criterion: Criterion;
  readonly dryRun: boolean;
  readonly arrivedMs: number;
  readonly deadlineMs: number;
  readonly gone: () => boolean;
}

/** What one protector said. */
export interface Judgement {
  readonly match: ProtectorMatch;
  readonly reason: Extract<Decision, { allowed: true }>["reason"];
}

export type Verdict =
  | { readonly kind: "allowed"; readonly judgements: readonly Judgement[] }
  | {
      readonly kind: "refused";
      readonly blockers: readonly Blocker[];
      /** Takes back what was reserved before the refusal; to be called once the refusal is delivered (design 5.7). */
      readonly rollBack: (() => void) | undefined;
    }
  | { readonly kind: "failed"; readonly tag: FailureTag; readonly message: string }
  | { readonly kind: "podGone" }
  | { readonly kind: "abandoned" };

export interface PipelineOptions {
  readonly cores: readonly ProtectorLookup[];
  readonly ports: Ports;
  readonly nonces: Nonces;
  readonly settleMs: number;
  /** Why nothing can be decided for a cell yet: it is not known which of its protectors have vanished (design 7). */
  readonly problemOfCell?: (cell: string) => string | undefined;
  /** Asks the owners of workloads whose protector has a probe; without it those are refused. */
  readonly askOwner?: AskOwner | undefined;
}

/** Whose owner has said yes in this review, and at which endpoint. */
type Agreed = Map<ProtectorMatch, string>;

/** Time that a roll-back may take; what it leaves behind settles (design 5.2). */
const ROLL_BACK_MS = 30_000;

function byCoreNamespaceName(a: ProtectorMatch, b: ProtectorMatch): number {
  if (a.core !== b.core) return a.core < b.core ? -1 : 1;
  if (a.namespace !== b.namespace) return a.namespace < b.namespace ? -1 : 1;
  return a.name < b.name ? -1 : a.name > b.name ? 1 : 0;
}

/** What lets a pod go only for now: it may become available. */
const PASSING: ReadonlySet<Judgement["reason"]> = new Set(["Unavailable", "Pending"]);

type Refusing = Extract<ProtectorOutcome, { kind: "refused" | "overloaded" | "vanished" }>;

function isRefusing(outcome: ProtectorOutcome): outcome is Refusing {
  return outcome.kind === "refused" || outcome.kind === "overloaded" || outcome.kind === "vanished";
}

function blockerOf({ core, namespace, name }: ProtectorMatch, outcome: Refusing): Blocker {
  const why: Blocker["why"] =
    outcome.kind === "refused"
      ? { kind: "quota", decision: outcome.decision }
      : outcome.kind === "overloaded"
        ? { kind: "overloaded", cause: outcome.cause }
        : { kind: "vanished", cause: "Vanished", uid: outcome.uid };
  return { core, namespace, name, why };
}

/** What a protector that is not there says by its last known version (design 7, S11). */
function outcomeOfVanished(ghost: ProtectorVersion, request: DisruptionRequest): ProtectorOutcome {
  const decision = decideLost(ghost.state, request);
  return decision === undefined ? { kind: "vanished", uid: ghost.uid } : { kind: "allowed", decision, written: false };
}

function ownerBlocker({ core, namespace, name }: ProtectorMatch, { result, message }: OwnerAnswer): Blocker {
  return { core, namespace, name, why: { kind: "owner", result, message } };
}

/** What is in force: the newest version known, or the last one of a protector that has vanished, perhaps since it was found to match. */
export function versionOf({ ghost, slot, absent }: ProtectorMatch): ProtectorVersion | undefined {
  return ghost ?? slot.newest() ?? absent?.();
}

function hasProbe(match: ProtectorMatch): boolean {
  return versionOf(match)?.object.spec.probe !== undefined;
}

/**
 * Decides disruptions over all protectors of all cores (design 5.7): all must agree; evaluated first, then reserved in the order of
 * core, namespace and name, and taken back by nonce when a later one refuses.
 */
export class Pipeline {
  readonly #options: PipelineOptions;

  constructor(options: PipelineOptions) {
    this.#options = options;
  }

  /** At once where no protector matches, else before the deadline; neither throws nor rejects. */
  decide(disruption: Disruption): MaybePromise<Verdict> {
    const nowMs = this.#nowMs();
    const matches: ProtectorMatch[] = [];
    let problem = this.#options.problemOfCell?.(disruption.cell);
    for (const core of this.#options.cores) {
      const trouble = core.problem(nowMs);
      const found = core.match(disruption.pod);
      // What has vanished refuses whether its core can be reached or not; what the others say rests on a cache that must be current.
      matches.push(...(trouble === undefined ? found : found.filter(({ ghost }) => ghost !== undefined)));
      problem ??= trouble;
    }
    if (matches.length === 0 && problem === undefined) return { kind: "allowed", judgements: [] };
    return this.#decideAll(disruption, matches, problem);
  }

  async #decideAll(disruption: Disruption, matches: ProtectorMatch[], problem: string | undefined): Promise<Verdict> {
    const request = this.#request(disruption);
    if (problem !== undefined) return this.#despite(problem, request, disruption, matches);
    matches.sort(byCoreNamespaceName);
    // What its annotation lets go, or a webhook in dry-run mode, goes whatever an owner says: with quota as without.
    const isProbed = !disruption.forced && matches.some(hasProbe);
    const agreed: Agreed = new Map();
    if (disruption.dryRun || matches.length > 1 || isProbed) {
      let verdict = await this.#evaluate(request, disruption, matches);
      // Before anything is written, and outside of every batch: an owner that takes its time holds up this review alone (design 9).
      if (verdict.kind === "allowed" && isProbed) verdict = await this.#askOwners(disruption, verdict, agreed);
      if (verdict.kind !== "allowed" || disruption.dryRun) return verdict;
    }
    return this.#reserve(request, disruption, matches, agreed);
  }

  /** The verdict, unless an owner says no, or nothing; `agreed` gets those that say yes. */
  async #askOwners(
    disruption: Disruption,
    verdict: Extract<Verdict, { kind: "allowed" }>,
    agreed: Agreed,
  ): Promise<Verdict> {
    const answers = await Promise.all(
      verdict.judgements.map(async ({ match, reason }) => {
        const question = this.#question(disruption, match, reason);
        if (question === undefined) return [];
        const answer = await this.#askOwner(question);
        if (answer.result !== "allowed") return [ownerBlocker(match, answer)];
        agreed.set(match, question.probe.endpoint);
        return [];
      }),
    );
    const blockers = answers.flat();
    return blockers.length === 0 ? verdict : { kind: "refused", blockers, rollBack: undefined };
  }

  #question(
    { pod, deadlineMs }: Disruption,
    match: ProtectorMatch,
    reason: Judgement["reason"],
  ): OwnerQuestion | undefined {
    return questionOf(versionOf(match)?.object, reason, pod, this.#nowMs(), deadlineMs);
  }

  async #askOwner(question: OwnerQuestion): Promise<OwnerAnswer> {
    const { askOwner } = this.#options;
    return askOwner === undefined
      ? { result: "failed", message: "has a probe, which nobody asks here" }
      : askOwner(question);
  }

  /** One core can't be asked. That another one refuses is an answer all the same; that it agrees is none. */
  async #despite(
    message: string,
    request: DisruptionRequest,
    disruption: Disruption,
    matches: readonly ProtectorMatch[],
  ): Promise<Verdict> {
    const failed: Verdict = { kind: "failed", tag: "core-unavailable", message };
    if (matches.length === 0) return failed;
    const verdict = await this.#evaluate(request, disruption, matches);
    return verdict.kind === "refused" ? verdict : failed;
  }

  #request(disruption: Disruption): DisruptionRequest {
    const nowMs = this.#options.ports.clock.nowMs();
    const { cell, operation, pod, forced, criterion } = disruption;
    return {
      cell,
      operation,
      pod,
      forced,
      criterion,
      nonce: this.#options.nonces.next(),
      startTime: formatMs(nowMs),
      staleRefreshBefore: formatMs(nowMs - 2 * this.#options.settleMs),
    };
  }

  /** Asks every protector for its verdict; nothing is written. */
  async #evaluate(
    request: DisruptionRequest,
    disruption: Disruption,
    matches: readonly ProtectorMatch[],
  ): Promise<Verdict> {
    const outcomes = await Promise.all(matches.map((match) => this.#verdictOf(request, disruption, match)));
    const blockers: Blocker[] = [];
    const judgements: Judgement[] = [];
    let other: Verdict | undefined;
    for (const [index, outcome] of outcomes.entries()) {
      const match = matches[index];
      if (match === undefined) continue;
      if (isRefusing(outcome)) blockers.push(blockerOf(match, outcome));
      else if (outcome.kind === "allowed") judgements.push({ match, reason: outcome.decision.reason });
      else if (outcome.kind !== "absent" && outcome.kind !== "done") other ??= outcome;
    }
    if (blockers.length > 0) return { kind: "refused", blockers, rollBack: undefined };
    return other ?? { kind: "allowed", judgements };
  }

  /** From the newest version known when that agrees; a refusal is confirmed by a fresh read (L6). */
  #verdictOf(request: DisruptionRequest, disruption: Disruption, match: ProtectorMatch): Promise<ProtectorOutcome> {
    if (match.ghost !== undefined) return Promise.resolve(outcomeOfVanished(match.ghost, request));
    const newest = match.slot.newest();
    const decision = newest === undefined ? undefined : decide(newest.state, request);
    if (decision?.allowed) return Promise.resolve({ kind: "allowed", decision, written: false });
    return this.#submit(request, disruption, match, true);
  }

  async #reserve(
    request: DisruptionRequest,
    disruption: Disruption,
    matches: readonly ProtectorMatch[],
    agreed: Agreed,
  ): Promise<Verdict> {
    const judgements: Judgement[] = [];
    const reserved: ProtectorMatch[] = [];
    for (const match of matches) {
      const outcome = await this.#submit(request, disruption, match, false);
      if (outcome.kind === "allowed") {
        judgements.push({ match, reason: outcome.decision.reason });
        if (outcome.written) reserved.push(match);
        if (this.#isUnasked(disruption, match, outcome.decision.reason, agreed))
          return this.#refusedBy(match, { kind: "overloaded", cause: "time" }, request, reserved);
      } else if (isRefusing(outcome)) return this.#refusedBy(match, outcome, request, reserved);
      else if (outcome.kind !== "absent" && outcome.kind !== "done") return outcome;
    }
    return { kind: "allowed", judgements };
  }

  #refusedBy(
    match: ProtectorMatch,
    outcome: Refusing,
    request: DisruptionRequest,
    reserved: readonly ProtectorMatch[],
  ): Verdict {
    const rollBack = reserved.length === 0 ? undefined : () => this.#rollBack(request, reserved);
    return { kind: "refused", blockers: [blockerOf(match, outcome)], rollBack };
  }

  /**
   * What was found when owners were asked may be over when the reservation is made: a pod that was Pending runs, a suspension has ended,
   * the protector has got its probe. The next try asks.
   */
  #isUnasked(disruption: Disruption, match: ProtectorMatch, reason: Judgement["reason"], agreed: Agreed): boolean {
    if (disruption.forced) return false;
    const question = this.#question(disruption, match, reason);
    return question !== undefined && agreed.get(match) !== question.probe.endpoint;
  }

  async #submit(
    request: DisruptionRequest,
    from: Disruption,
    match: ProtectorMatch,
    verdictOnly: boolean,
  ): Promise<ProtectorOutcome> {
    if (match.ghost !== undefined) return await this.#vanished(match.ghost, request, from);
    const outcome = await this.#ask(request, from, match, verdictOnly);
    const lost = outcome.kind === "absent" ? match.absent?.() : undefined;
    return lost === undefined ? outcome : await this.#vanished(lost, request, from);
  }

  /** A core that was asked first may have taken its time: a pod that is evicted, at no version of it, may be available by now. */
  async #vanished(ghost: ProtectorVersion, request: DisruptionRequest, from: Disruption): Promise<ProtectorOutcome> {
    const outcome = outcomeOfVanished(ghost, request);
    const { podReadMs, reread, deadlineMs } = from;
    const nowMs = this.#nowMs();
    const mayChange = outcome.kind === "allowed" && PASSING.has(outcome.decision.reason);
    if (!mayChange || reread === undefined || nowMs - (podReadMs ?? nowMs) < MAX_REREAD_MS) return outcome;
    const live = await reread(Math.max(1, Math.min(MAX_REREAD_MS, deadlineMs - nowMs)));
    if (live.kind === "found") return outcomeOfVanished(ghost, { ...request, pod: live.pod });
    if (live.kind === "gone") return { kind: "podGone" };
    return { kind: "failed", tag: "cell-unavailable", message: live.message };
  }

  #ask(
    request: DisruptionRequest,
    from: Disruption,
    match: ProtectorMatch,
    verdictOnly: boolean,
  ): Promise<ProtectorOutcome> {
    const { podReadMs, reread, arrivedMs, deadlineMs, gone } = from;
    return new Promise((settle) => {
      match.slot.submit({
        kind: "reserve",
        request,
        verdictOnly,
        podReadMs,
        reread,
        arrivedMs,
        deadlineMs,
        gone,
        attempt: undefined,
        settle,
      });
    });
  }

  #rollBack(request: DisruptionRequest, reserved: readonly ProtectorMatch[]): void {
    const nowMs = this.#nowMs();
    const { cell, operation, nonce, pod } = request;
    for (const { slot } of reserved) {
      const deadlineMs = nowMs + ROLL_BACK_MS;
      const settle = (): void => undefined;
      slot.submit({ kind: "rollBack", cell, uid: pod.uid, operation, nonce, arrivedMs: nowMs, deadlineMs, settle });
    }
  }

  #nowMs(): number {
    return this.#options.ports.clock.monotonicMs();
  }
}
