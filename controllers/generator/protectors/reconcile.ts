/**
 * The reconciler of one source: gathers the facts, has `plan.ts` decide, and performs the steps in order
 * (docs/design.md#generator). Read `plan.ts` next; `protector.ts` says what a protector should be.
 */
import type { LostProtectorsBySource } from "../../../shared/recovery/lost-protectors-by-source.ts";
import { DONE, later, type Reconcile, type ReconcileOutcome } from "../../../shared/runtime/reconcile.ts";
import { GENERATOR_FINALIZER } from "../../../shared/schema/annotations.ts";
import type { Enforcement, PodProtector } from "../../../shared/schema/podprotector.ts";
import { KEEP_SCALE_MS } from "../budgets/polled-scales.ts";
import type { Resolver } from "../budgets/resolve.ts";
import type { KindWatch } from "../sources/kind-watch.ts";
import {
  type ProtectionSource,
  parseSourceKey,
  type RequiredProtector,
  type SourcePlugin,
} from "../sources/protection-source.ts";
import type { BudgetStatusWriter } from "./budget-status-writer.ts";
import type { Problem, ProblemReports } from "./events.ts";
import { alternativeName, protectorName } from "./names.ts";
import { isRepair, plan, type ReconcileStep, type SourceFacts, type StepKind } from "./plan.ts";
import { isUnproven, requiredBy, withoutCountingFields } from "./protector.ts";
import type { ProtectorIndex } from "./protector-index.ts";
import { failedCall, isRefused, isRejected, perform, type StepContext, type StepOptions } from "./steps.ts";
import type { UndoneRepairs } from "./undone-repairs.ts";

export interface ReconcilerOptions extends StepOptions {
  readonly plugins: readonly SourcePlugin[];
  /** The watched objects of each plugin, by its name. */
  readonly kinds: ReadonlyMap<string, Pick<KindWatch, "kind" | "get">>;
  readonly resolver: Pick<Resolver, "resolve" | "forget">;
  readonly protectors: Pick<ProtectorIndex, "of" | "get" | "wrote" | "released"> &
    Partial<Pick<ProtectorIndex, "isHeldByOthers" | "unanswered" | "told">>;
  readonly lost: Pick<LostProtectorsBySource, "of">;
  /** The enforcement of sources that state none, by namespace; absent: Enforce. */
  readonly enforcementIn?: ((namespace: string) => Enforcement) | undefined;
  /** Why a namespace does not state it as it means to, for people. */
  readonly invalidIn?: ((namespace: string) => string | undefined) | undefined;
  readonly reports: ProblemReports;
  /** Asked before each write: a deposed leader writes nothing more. */
  readonly mayWrite: () => boolean;
}

/** Interval for minimums that depend on objects without a watch. */
const RECHECK_MS = 30_000;
/** Longest pause after a refusal, which may last for days: a tenant may have thousands of sources over its quota. */
const REFUSED_MS = 60_000;
const NAMESPACE_TERMINATING = "its namespace is being deleted and takes no new protector";

/**
 * The reconciler of the queue's keys (`plugin/namespace/name`). Rejects for a key of an unknown plugin, which is a bug.
 */
export function reconciler(options: ReconcilerOptions): Reconcile<string> {
  const { reports } = options;
  let statuses: BudgetStatusWriter | undefined;
  let repairs: UndoneRepairs | undefined;
  return async (key, { signal, failures }) => {
    const { api, timeoutMs, plugins, protectors, mayWrite } = options;
    const identity = parseSourceKey(key);
    const { plugin, namespace, name } = identity;
    const watch = options.kinds.get(plugin);
    if (watch === undefined) throw new Error(`there is no plugin ${plugin}`);
    const work: Work = { options, calls: { api, timeoutMs, signal }, key, kind: watch.kind };
    const watched = watch.get(`${namespace}/${name}`);
    const resolved = await resolve(work, watched, protectors.of(key));
    if (resolved.kind === "end") return resolved.outcome;
    // Only now: meanwhile an aggregator may have restored one.
    const own = protectors.of(key);
    const source = enforced(resolved.source, options);
    if (source === undefined) statuses?.forget(key);
    else if (!source.deleting) for (const { metadata } of own) protectors.told?.delete(metadata.uid);
    // Most clusters have no budget whose status the generator writes.
    if (source?.budgetStatus !== undefined) statuses ??= await newStatusWriter(options);
    const report = (problem: Problem, why: string | undefined): void =>
      reports.report(key, problem, work.kind, watched, why);
    const facts: SourceFacts = {
      ...{ kind: watch.kind, plugins, identity, source, protectors: own, lost: options.lost.of(key) },
      named: (other) => protectors.get(`${namespace}/${other}`),
      isTaken: (other) => protectors.isHeldByOthers?.(`${namespace}/${other}`) ?? false,
    };
    let steps = plan(facts);
    if (steps.some(isRepair)) {
      repairs ??= await newUndoneRepairs(options);
      const undone = repairs;
      steps = plan({ ...facts, waits: (step) => undone.isWaiting(key, step) });
    }
    if (isLetGo(source) && mayWrite()) await statuses?.clear({ ...work, source }, source);
    const made = (step: ReconcileStep, undone: boolean): unknown => repairs?.made(key, step, undone, facts.named);
    const end = await performAll({ ...work, source }, steps, { report, made, failures });
    if (end !== undefined) return end;
    report("namespaceTerminating", undefined);
    report("refused", undefined);
    report("undone", repairs?.why(key));
    const repairMs = repairs?.nextMs(key);
    const recheck = resolved.recheck ? later(resolved.soon ? KEEP_SCALE_MS : RECHECK_MS) : DONE;
    const again = repairMs === undefined ? recheck : sooner(recheck, later(repairMs));
    const present = source?.deleting === true || steps.length > 0 ? undefined : own[0];
    if (statuses === undefined || source === undefined || present === undefined || !mayWrite()) return again;
    return sooner(again, await statuses.show({ ...work, source }, source, present));
  };
}

/** These wait for all steps before them; the others are of one protector alone. */
const RELEASES: readonly StepKind[] = ["release", "removeSourceFinalizer"];
/** These wait for the finalizer of the source. */
const CREATIONS: readonly StepKind[] = ["create", "restore"];

interface PerformAllOptions {
  readonly report: (problem: Problem, why: string) => void;
  readonly made: (step: ReconcileStep, undone: boolean) => unknown;
  readonly failures: number;
}

/**
 * Performs the steps; undefined once all are done. What keeps one protector from being written keeps no other, but all
 * releases: it may take the place of the released.
 */
async function performAll(
  work: Work & StepContext,
  steps: readonly ReconcileStep[],
  { report, made, failures }: PerformAllOptions,
): Promise<ReconcileOutcome | undefined> {
  const { options } = work;
  let end: ReconcileOutcome | undefined;
  let hasFinalizer = true;
  for (const step of steps) {
    if (!options.mayWrite()) return DONE;
    if ((end !== undefined && RELEASES.includes(step.kind)) || (!hasFinalizer && CREATIONS.includes(step.kind)))
      continue;
    const outcome = await perform(work, step);
    if (outcome.kind === "done" || outcome.kind === "undone") {
      made(step, outcome.kind === "undone");
      continue;
    }
    // Only a creation shows that the namespace is terminating: the earlier steps succeed there.
    if (step.kind === "create" && outcome.kind === "later") report("namespaceTerminating", NAMESPACE_TERMINATING);
    // Of several refusals the first one counts, so that an Event tells the same each time.
    if (end?.kind !== "failed") {
      if (isRefused(outcome)) report("refused", outcome.error.message);
      end = outcome.kind === "failed" ? afterRefusal(outcome, failures, options) : sooner(end ?? outcome, outcome);
    }
    if (outcome.kind === "failed" && !isRejected(outcome)) break;
    hasFinalizer &&= step.kind !== "addSourceFinalizer";
  }
  return end;
}

async function newStatusWriter({ ports }: ReconcilerOptions): Promise<BudgetStatusWriter> {
  const { BudgetStatusWriter } = await import("./budget-status-writer.ts");
  return new BudgetStatusWriter(ports.clock);
}

async function newUndoneRepairs({ ports }: ReconcilerOptions): Promise<UndoneRepairs> {
  const { UndoneRepairs } = await import("./undone-repairs.ts");
  return new UndoneRepairs(ports.clock);
}

/** A webhook that is down is back soon; a policy or a quota is not. */
function afterRefusal(
  outcome: ReconcileOutcome & { readonly kind: "failed" },
  failures: number,
  { ports }: ReconcilerOptions,
): ReconcileOutcome {
  if (!isRejected(outcome)) return outcome;
  const pauseMs = Math.min(REFUSED_MS, 100 * 2 ** failures);
  return { ...outcome, retryAfterMs: pauseMs * (1 - ports.random.fraction() / 2) };
}

function enforced(
  source: ProtectionSource | undefined,
  { enforcementIn }: ReconcilerOptions,
): ProtectionSource | undefined {
  if (source === undefined || source.enforcement !== undefined || enforcementIn === undefined) return source;
  return { ...source, enforcement: enforcementIn(source.namespace) };
}

/** True where the protection of the source ends, but not the source. */
function isLetGo(source: ProtectionSource | undefined): source is ProtectionSource {
  if (source === undefined || source.deleting) return false;
  return source.protectors.length === 0 && source.finalizers.includes(GENERATOR_FINALIZER);
}

function sooner(one: ReconcileOutcome, other: ReconcileOutcome): ReconcileOutcome {
  if (one.kind !== "later") return other;
  return other.kind === "later" && other.afterMs < one.afterMs ? other : one;
}

interface Work extends Omit<StepContext, "source" | "options"> {
  readonly options: ReconcilerOptions;
}

type ResolvedSource =
  | {
      readonly kind: "resolved";
      readonly source: ProtectionSource | undefined;
      readonly recheck: boolean;
      readonly soon?: boolean;
    }
  | { readonly kind: "end"; readonly outcome: ReconcileOutcome };

/** The source with its required protectors, or the end of the reconcile where they are unknown. */
async function resolve(
  { options, calls, key, kind }: Work,
  source: ProtectionSource | undefined,
  protectors: readonly PodProtector[],
): Promise<ResolvedSource> {
  const { resolver, lost, reports } = options;
  if (source?.need === undefined) {
    resolver.forget(key);
    reports.report(key, "ignored", kind, source, noneOf(source?.protectors) ?? whyOf(source, options));
    return { kind: "resolved", source, recheck: false };
  }
  const { need } = source;
  // A lost protector still shows the requirement of its source. A number of a budget that only a cell vouches for does
  // not count: an attacker in that cell could create the protector before the source, and a budget may keep its number.
  const isKnown = (one: PodProtector): boolean => need.kind !== "budget" || !isUnproven(one, source);
  const presents = [...protectors, ...lost.of(key)].filter(isKnown);
  const resolution = await resolver.resolve({ key, kind, source, need, presents, signal: calls.signal });
  switch (resolution.kind) {
    case "waiting":
      return { kind: "end", outcome: DONE };
    case "failed": {
      const outcome = failedCall({ options, key }, resolution.failure, "find out how many pods there should be");
      return { kind: "end", outcome };
    }
    case "unresolved": {
      reports.report(key, "unresolved", kind, source, resolution.why);
      const known = resolution.protectors ?? [];
      const names = new Set(known.flatMap((one) => namesOf(one, key)));
      const before = requiredBefore(source, protectors, lost.of(key));
      const required = [...known, ...before.filter(({ name }) => !names.has(name))];
      // A plan without required protectors would remove the finalizer from the source.
      if (required.length === 0) return { kind: "end", outcome: later(RECHECK_MS) };
      return { kind: "resolved", source: { ...source, protectors: required }, recheck: true };
    }
    case "resolved": {
      const { protectors: required, recheck, soon = false, why } = resolution;
      const told = why ?? noneOf(required) ?? whyOf({ ...source, protectors: required }, options);
      reports.report(key, why === undefined ? "ignored" : "unresolved", kind, source, told);
      return { kind: "resolved", source: { ...source, protectors: required }, recheck, soon };
    }
  }
}

/** What is told of a source that states something unreadable, or its namespace where the source leaves that to it. */
function whyOf(source: ProtectionSource | undefined, { invalidIn }: ReconcilerOptions): string | undefined {
  if (source === undefined || source.why !== undefined) return source?.why;
  const isLeft = source.enforcement === undefined && source.protectors.length > 0;
  return isLeft ? invalidIn?.(source.namespace) : undefined;
}

function noneOf(protectors: readonly RequiredProtector[] = []): string | undefined {
  return protectors.find(({ none }) => none !== undefined)?.none;
}

/** The names that a plan may give the protector. */
function namesOf({ name }: RequiredProtector, key: string): string[] {
  const first = protectorName(name);
  return [first, alternativeName(first, key)];
}

/**
 * Present and lost protectors as requirements, while their source can't derive any, so that deleted and altered ones
 * are repaired.
 */
function requiredBefore(
  source: ProtectionSource,
  present: readonly PodProtector[],
  lost: readonly PodProtector[],
): RequiredProtector[] {
  const names = new Set(present.map(({ metadata }) => metadata.name));
  return [...present, ...lost.filter(({ metadata }) => !names.has(metadata.name))].map((protector) =>
    requiredBy(
      isUnproven(protector, source) ? { ...protector, spec: withoutCountingFields(protector.spec) } : protector,
    ),
  );
}
