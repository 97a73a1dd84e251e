/**
 * The protectors of a source whose minimum depends on other objects: a budget over the workloads of its pods, a custom
 * resource by its scale subresource. `workload-scales.ts` and `budget-pods.ts` read those objects.
 */
import {
  needsExpectedCount,
  readableMinimum,
  strictestMinimum,
} from "../../../shared/decide/minimum/budget-minimum.ts";
import { type DerivedMinimum, INT32_MAX, podCount } from "../../../shared/decide/minimum/workload-minimum.ts";
import type { ApiFailure } from "../../../shared/kube/client/api-result.ts";
import type { Clock } from "../../../shared/runtime/clock.ts";
import { DERIVATION_ANNOTATION } from "../../../shared/schema/annotations.ts";
import type { LabelSelector, PodProtector } from "../../../shared/schema/podprotector.ts";
import {
  type Budget,
  type Need,
  type ProtectionSource,
  pluginName,
  type RequiredProtector,
  type SourceKind,
} from "../sources/protection-source.ts";
import { withRunningFloor } from "../sources/running-floor.ts";
import { podGroup } from "../sources/workload-kinds.ts";
import type { BudgetPods } from "./budget-pods.ts";
import {
  areUncounted,
  cellsOf,
  expectedInCells,
  isForOthers,
  isOnlyCore,
  UNCOUNTED,
  waitsForCells,
  whyInVain,
  whyNoSay,
} from "./cell-counts.ts";
import { coreCount, type ExpectedCount, type KnownCoreCount, NOTHING } from "./core-count.ts";
import type { WorkloadScales } from "./workload-scales.ts";

export type Resolution =
  | {
      readonly kind: "resolved";
      readonly protectors: readonly RequiredProtector[];
      /** The minimum depends on objects that are not watched, so it is computed again. */
      readonly recheck: boolean;
      /** Some of these objects came from the cache, so they are read again soon. */
      readonly soon?: boolean;
      /** Why the minimum is unknown, where the protectors keep their previous one. */
      readonly why?: string | undefined;
    }
  /** The source keeps its present protectors, beside those of the parts that are known. */
  | { readonly kind: "unresolved"; readonly why: string; readonly protectors?: readonly RequiredProtector[] }
  /** Pods or workloads are not listed yet. The key is queued when they are. */
  | { readonly kind: "waiting" }
  | { readonly kind: "failed"; readonly failure: ApiFailure };

export interface ResolveRequest {
  readonly key: string;
  readonly kind: SourceKind;
  readonly source: ProtectionSource;
  readonly need: Need;
  /** The protectors of the source, and the lost ones. A budget has one. */
  readonly presents: readonly PodProtector[];
  readonly signal: AbortSignal;
}

type NeedOf<Kind extends Need["kind"]> = Extract<Need, { readonly kind: Kind }>;

interface BudgetRequest extends ResolveRequest {
  readonly present: PodProtector | undefined;
  readonly budget: Budget;
  /** The cells publish how many pods their workloads ask for. */
  readonly isOverCells?: boolean;
}

export interface ResolverOptions {
  readonly workloads: WorkloadScales;
  readonly pods: Pick<BudgetPods, "of" | "forget">;
  readonly clock: Pick<Clock, "nowMs">;
}

export class Resolver {
  readonly #options: ResolverOptions;

  constructor(options: ResolverOptions) {
    this.#options = options;
  }

  /** The source with this key is gone, or no longer needs other objects. */
  forget(key: string): void {
    this.#options.workloads.forget(key);
    this.#options.pods.forget(key);
  }

  async resolve(request: ResolveRequest): Promise<Resolution> {
    const { key, need, presents } = request;
    this.#options.workloads.forget(key);
    switch (need.kind) {
      case "unreadable":
        return { kind: "unresolved", why: need.why };
      case "status":
        return byStatus(request, need);
      case "scale":
        return await this.#byScale(request, need);
      case "groups":
        return byGroups(request, need);
      case "budget":
        return await this.#byBudget({ ...request, budget: need.budget, present: presents[0] });
    }
  }

  async #byScale(request: ResolveRequest, need: NeedOf<"scale">): Promise<Resolution> {
    const { kind, source, signal } = request;
    const found = await this.#options.workloads.polled.read(kind, source.namespace, source.name, signal);
    if (found.kind === "missing") return { kind: "unresolved", why: found.why };
    if (found.kind !== "found") return found;
    const { replicas, what, uid } = found;
    // Also of the one that took its place, before the watch shows it.
    if (uid !== "" && uid !== source.uid) return { kind: "unresolved", why: `${what} is another one` };
    if (source.deleting && replicas <= 0) return resolved([]);
    const { stated, maxUnavailable, selector = found.selector } = need;
    if (selector === undefined) {
      return { kind: "unresolved", why: `the scale subresource of ${what} has no selector in its status` };
    }
    const groups = [podGroup("", replicas, selector, stated, maxUnavailable)];
    return byGroups(request, { ...need, kind: "groups", groups, problem: undefined });
  }

  async #byBudget(request: BudgetRequest): Promise<Resolution> {
    const { selector, targetRef, expectedPods } = request.budget;
    if (targetRef !== undefined) return await this.#byTarget(request, targetRef);
    if (selector === undefined) return resolved([]);
    if (!needsExpectedCount(request.budget)) return required(request, selector, { ...NOTHING, how: "" });
    if (expectedPods !== undefined) return required(request, selector, statedBy(expectedPods));
    return await this.#bySelector(request, selector);
  }

  async #byTarget(request: BudgetRequest, targetRef: NonNullable<Budget["targetRef"]>): Promise<Resolution> {
    const { key, source, budget, signal } = request;
    const found = await this.#options.workloads.find(key, targetRef, source.namespace, signal);
    if (found.kind === "missing" && found.unscaled !== undefined) {
      return await this.#byUnscaled(request, found.unscaled, targetRef.name, found.why);
    }
    if (found.kind === "missing") return unfollowed(request, found.why);
    if (found.kind !== "found") return found;
    const { selector, what, replicas, scale, isKept: soon = false } = found;
    if (selector === undefined) return { kind: "unresolved", why: `${what} has no selector` };
    const { expectedPods } = budget;
    const counted = { ...NOTHING, count: replicas, how: ` (${what})` };
    const expected = expectedPods === undefined ? counted : statedBy(expectedPods);
    return required(request, selector, { ...expected, recheck: scale === undefined, soon });
  }

  /**
   * A workload with a selector of its pods, but without a number: like OpenKruise, takes the number from the budget.
   */
  async #byUnscaled(request: BudgetRequest, kind: SourceKind, name: string, why: string): Promise<Resolution> {
    const { source, budget, signal } = request;
    const { expectedPods } = budget;
    if (needsExpectedCount(budget) && expectedPods === undefined) return unfollowed(request, why);
    const found = await this.#options.workloads.polled.selector(kind, source.namespace, name, signal);
    if (found.kind === "missing") return unfollowed(request, found.why);
    if (found.kind === "failed") return found;
    const expected = expectedPods === undefined ? { ...NOTHING, how: "" } : statedBy(expectedPods);
    return required(request, found.selector, { ...expected, recheck: true });
  }

  async #bySelector(request: BudgetRequest, selector: LabelSelector): Promise<Resolution> {
    const own = await coreCount(this.#options, request, selector);
    if (own.kind === "waiting" || own.kind === "failed") return own;
    if (isOverCells(request, own)) return overCells(request, selector, own, this.#options.clock.nowMs());
    return own.kind === "unknown" ? unknown(request, selector, own) : required(request, selector, own);
  }
}

function resolved(protectors: readonly RequiredProtector[], recheck = false, soon = false): Resolution {
  return { kind: "resolved", protectors, recheck, soon };
}

/** One protector for each group of the object's pods, told apart by the end of the name. */
function byGroups({ kind, source }: ResolveRequest, need: NeedOf<"groups">): Resolution {
  const { groups, problem, minReadySeconds = 0 } = need;
  const all = `${pluginName(kind)}-${source.name}`;
  const protectors = groups.flatMap(({ name, selector, minimum: { minAvailable, derivation }, none, running }) => {
    const spec = { minAvailable, minReadySeconds, selector };
    return withRunningFloor({ name: name === "" ? all : `${all}-${name}`, spec, derivation, none }, running);
  });
  return problem === undefined ? resolved(protectors) : { kind: "unresolved", why: problem, protectors };
}

function statedBy(expectedPods: number): ExpectedCount {
  return { ...NOTHING, count: expectedPods, how: " (as the budget says)" };
}

/**
 * Whether the workloads of all cells count (docs/design.md#expected-pods): where the budget says so, where the core has
 * none, and where several cells have pods. Once they count, they always count: cells that lose all their pods must not
 * make the promise smaller.
 */
function isOverCells({ budget: { countedIn }, present }: BudgetRequest, own: KnownCoreCount): boolean {
  if (countedIn !== undefined) return countedIn === "cells";
  if (present?.spec.countExpectedPods === true) return true;
  return isNowhere(own) || cellsOf(present).filter(({ totalReplicas }) => totalReplicas > 0).length > 1;
}

function isNowhere(own: KnownCoreCount): boolean {
  return own.kind === "counted" ? own.isNowhere === true : own.pods === 0;
}

/**
 * The larger of two numbers: the pods that the core's workloads ask for, which may be federated, and the sum over the
 * workloads of all cells.
 */
function overCells(request: BudgetRequest, selector: LabelSelector, own: KnownCoreCount, nowMs: number): Resolution {
  const { present, budget } = request;
  const { hasAnySay, isAwaited, silent, sum, how } = expectedInCells(present);
  const counted = { ...request, isOverCells: true };
  // A smaller minimum would be in force while cells count, and one of 0 before that.
  if ((hasAnySay || isNowhere(own)) && areUncounted(present, selector)) {
    const [why, recheck] = [whyInVain(present, selector, nowMs), present !== undefined];
    return required(counted, selector, { ...NOTHING, count: INT32_MAX, how: UNCOUNTED, recheck, why });
  }
  if (!hasAnySay) {
    if (own.kind === "counted") return required(counted, selector, own);
    return unknown(counted, selector, { ...own, why: whyNoSay(present) ?? own.why }, keptOf(request, selector));
  }
  if (silent !== undefined) {
    const isCore = budget.countedIn === undefined && isOnlyCore(cellsOf(present), own.pods);
    if (isCore && own.kind === "counted") return required(request, selector, own);
    // What the others may lose depends on how many of its pods are available.
    const least = silent.isAwaited ? silent.pods : 0;
    const before = isAwaited ? (keptOf(request, selector) ?? 0) : 0;
    return unknown(counted, selector, silent, Math.max(least, before));
  }
  if (own.kind === "counted" && own.count > sum) return required(counted, selector, own);
  return required(counted, selector, { ...NOTHING, count: sum, how, recheck: own.kind === "counted" && own.recheck });
}

function required(request: BudgetRequest, selector: LabelSelector, expected: ExpectedCount): Resolution {
  const minimum = strictestMinimum(request.budget, expected.count, expected.how);
  if (minimum === undefined) return unreadable(request, selector, expected);
  const { recheck, soon = false, why } = expected;
  // A minimum that is a fixed number needs no number of expected pods.
  const known = expected.how === "" ? {} : { expectedPods: expected.count };
  const protectors = [{ ...budgetProtector(request, selector, minimum), ...known }];
  return { kind: "resolved", protectors, recheck, soon, why };
}

/**
 * The minimum alone stays unchanged, unless a limit of another cluster asks for more. Without a previous minimum, all
 * pods are required, because the disruption controller and x-pdb allow no disruption under an unreadable limit.
 */
function unreadable(request: BudgetRequest, selector: LabelSelector, expected: ExpectedCount): Resolution {
  const why = "its minAvailable or maxUnavailable can't be read";
  const readable = readableMinimum(request.budget, expected.count, expected.how);
  const kept = keptOf(request, selector) ?? 0;
  const all = {
    minAvailable: podCount(expected.count),
    derivation: `all of expected ${expected.count}${expected.how}`,
  };
  const asIs = { minAvailable: kept, derivation: `minAvailable ${kept}, kept as it was` };
  const least = readable ?? (kept > 0 ? asIs : all);
  const minimum = least.minAvailable >= kept ? least : asIs;
  const derivation = `${minimum.derivation} (${why}${readable === undefined ? "" : " in one of its clusters"})`;
  const protectors = [budgetProtector(request, selector, { ...minimum, derivation })];
  return { kind: "resolved", protectors, recheck: expected.recheck, soon: expected.soon ?? false, why };
}

/** The previous minimum, where it is one of the same pods. */
function keptOf({ present }: BudgetRequest, selector: LabelSelector): number | undefined {
  const isOfThese = present !== undefined && !isForOthers(present, selector) && !waitsForCells(present);
  return isOfThese ? present.spec.minAvailable : undefined;
}

/** In the derivation of a minimum that does not come from a workload: the budget itself said it. */
const UNSAID = /no workload matches|the budget (says|sets)/;
/** Ends the derivation of a minimum that was never known. */
const ALL = "as many as there are";

function derivationOf(present: PodProtector | undefined): string | undefined {
  return present?.metadata.annotations?.[DERIVATION_ANNOTATION];
}

const UNKNOWN = "how many pods there should be is unknown";
/** The number of pods at the start of a derivation, where there were any. What follows has names that people chose. */
const EXPECTED = new RegExp(`^(?:\\S+ of |${UNKNOWN}, )?expected ([1-9]\\d*)`);

/** The minimum of the budget's limits, which may have changed since, over the number of pods that was known last. */
function ofLastKnown(
  { budget }: BudgetRequest,
  before: string | undefined,
): { readonly minimum: number; readonly unknown: string } {
  const [, expected] = EXPECTED.exec(before ?? "") ?? [];
  if (expected === undefined) return { minimum: 0, unknown: UNKNOWN };
  const { minAvailable: minimum = 0 } = strictestMinimum(budget, Number(expected), "") ?? {};
  return { minimum, unknown: `${UNKNOWN}, expected ${expected} before` };
}

/** The protector stays as it is, unless the budget asks for more of the pods that there were. */
function unfollowed(request: BudgetRequest, reason: string): Resolution {
  const why = `its targetRef can't be followed: ${reason}`;
  const { present } = request;
  const { minimum, unknown } = ofLastKnown(request, derivationOf(present));
  if (present === undefined || minimum <= present.spec.minAvailable) return { kind: "unresolved", why };
  const { enforcement: _, ...before } = present.spec;
  const derivation = `${unknown} (${why}): minAvailable ${minimum}`;
  const required = { name: present.metadata.name, spec: { ...before, minAvailable: minimum }, derivation };
  return { kind: "unresolved", why, protectors: [required] };
}

/**
 * While the disruption controller can't compute `expectedPods`, it allows no eviction and keeps `desiredHealthy`.
 * Likewise, the minimum stays unchanged here, unless the budget asks for more now. Where it was never known, all pods
 * are required, including those that come later, because a budget is often older than its pods.
 */
function unknown(
  request: BudgetRequest,
  selector: LabelSelector,
  { pods, why }: { readonly pods: number; readonly why: string },
  least = 0,
): Resolution {
  const kept = keptOf(request, selector);
  const before = derivationOf(request.present) ?? "";
  // A minimum of 0 that does not come from a workload is not kept. A 0 that comes from a workload is: its last pods may
  // be disrupted.
  const isUnsaid = kept === 0 && (request.isOverCells === true || UNSAID.test(before));
  const isKept = kept !== undefined && !isUnsaid && !before.endsWith(ALL);
  // A number of other pods is none of these.
  const last = ofLastKnown(request, kept === undefined ? undefined : before);
  const known = Math.max(isKept ? kept : pods, last.minimum);
  const minAvailable = Math.max(known, least);
  const how = isKept && minAvailable === known ? "kept as it was" : ALL;
  const derivation = `${last.unknown} (${why}): minAvailable ${minAvailable}, ${how}`;
  const protectors = [budgetProtector(request, selector, { minAvailable, derivation })];
  return { kind: "resolved", protectors, recheck: true, why };
}

/** Deleted before its controller has counted, which then never does, it keeps the pods that were promised before. */
function byStatus({ source, presents }: ResolveRequest, { required }: NeedOf<"status">): Resolution {
  const protectors = required.map((one) => uncounted(one, presents));
  return resolved(source.deleting && protectors.every(({ spec }) => spec.minAvailable === 0) ? [] : protectors);
}

/** A workload that was deleted and created again keeps the minimum until its controller has counted. */
function uncounted(required: RequiredProtector, presents: readonly PodProtector[]): RequiredProtector {
  // A protector has another name where its own was taken.
  const present =
    presents.find(({ metadata }) => metadata.name === required.name) ??
    presents.find(({ spec }) => spec.healthCriterion === required.spec.healthCriterion);
  if (present === undefined) return required;
  const { minAvailable } = present.spec;
  const derivation = `its controller has counted nothing yet: minAvailable ${minAvailable}, kept as it was`;
  return { ...required, spec: { ...required.spec, minAvailable }, derivation };
}

function budgetProtector(
  { kind, source, budget, isOverCells = false }: BudgetRequest,
  selector: LabelSelector,
  { minAvailable, derivation }: DerivedMinimum,
): RequiredProtector {
  const { ignoredPodSelector } = budget;
  const ignored = ignoredPodSelector === undefined ? {} : { ignoredPodSelector };
  const counted = isOverCells ? { countExpectedPods: true } : {};
  return {
    name: `${pluginName(kind)}-${source.name}`,
    spec: { minAvailable, minReadySeconds: 0, selector, ...ignored, ...counted, ...budget.spec },
    derivation,
    owns: [...budget.owns, "countExpectedPods"],
  };
}
