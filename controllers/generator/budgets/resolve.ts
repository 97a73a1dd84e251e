/**
 * From what a source asks for to absolute numbers, where that takes more than the source itself (design 7): budgets over the
 * workloads of their pods, and custom resources by their scale subresource.
 */

import { compileSelector } from "../../../shared/decide/availability/selector.ts";
import { disruptionMinimum, needsExpectedCount } from "../../../shared/decide/minimum/budget-minimum.ts";
import { scaledMinimum } from "../../../shared/decide/minimum/workload-minimum.ts";
import type { ApiFailure } from "../../../shared/kube/client/api-result.ts";
import type { LabelSelector, PodProtector } from "../../../shared/schema/podprotector.ts";
import type { Budget, Need, ProtectionSource, RequiredProtector, SourceKind } from "../sources/protection-source.ts";
import type { BudgetPods } from "./budget-pods.ts";
import { without } from "./exempt.ts";
import type { WorkloadLookup, Workloads } from "./workloads.ts";

export type Resolution =
  /** `recheck`: it rests on what is not watched. `why`: the number could not be found out, and what is required is what was. */
  | {
      readonly kind: "resolved";
      readonly protectors: readonly RequiredProtector[];
      readonly recheck: boolean;
      readonly why?: string;
    }
  /** Nothing else can be required now than what is there. */
  | { readonly kind: "unresolved"; readonly why: string }
  /** Something is not known yet; the key is queued again when it is. */
  | { readonly kind: "waiting" }
  | { readonly kind: "failed"; readonly failure: ApiFailure };

export interface ResolveRequest {
  readonly key: string;
  readonly kind: SourceKind;
  readonly source: ProtectionSource;
  readonly need: Need;
  /** A protector that it has already, or had until it vanished without a release. */
  readonly present: PodProtector | undefined;
  readonly signal: AbortSignal;
}

export interface ResolverOptions {
  readonly workloads: Workloads;
  readonly pods: Pick<BudgetPods, "of" | "forget">;
}

type FoundWorkload = Extract<WorkloadLookup, { kind: "found" }>;

/** Workloads that the derivation names; the others are counted. */
const MAX_NAMED = 5;

export class Resolver {
  readonly #options: ResolverOptions;

  constructor(options: ResolverOptions) {
    this.#options = options;
  }

  /** The source with this key is gone, or needs nothing any more. */
  forget(key: string): void {
    this.#options.workloads.forget(key);
    this.#options.pods.forget(key);
  }

  async resolve(question: ResolveRequest): Promise<Resolution> {
    const { key, need } = question;
    this.#options.workloads.forget(key);
    if (need.kind === "status") return { kind: "resolved", protectors: [uncounted(question, need)], recheck: false };
    if (need.kind === "scale") return await this.#scale(question, need);
    const { budget } = need;
    if (budget.target !== undefined) return await this.#target(question, budget, budget.target);
    if (budget.selector === undefined) return { kind: "resolved", protectors: [], recheck: false };
    return await this.#selected(question, budget, budget.selector);
  }

  async #scale({ kind, source, signal }: ResolveRequest, need: Extract<Need, { kind: "scale" }>): Promise<Resolution> {
    const found = await this.#options.workloads.scale(kind, source.namespace, source.name, signal);
    if (found.kind === "missing") return { kind: "unresolved", why: found.why };
    if (found.kind !== "found") return found;
    if (source.deleting && found.replicas <= 0) return { kind: "resolved", protectors: [], recheck: false };
    if (found.selector === undefined) {
      return { kind: "unresolved", why: `the scale subresource of ${found.what} has no selector in its status` };
    }
    const { minAvailable, derivation } = scaledMinimum(found.replicas, need.maxUnavailable);
    const spec = { minAvailable, minReadySeconds: 0, selector: found.selector };
    const name = `${kind.kind.toLowerCase()}-${source.name}`;
    return { kind: "resolved", protectors: [{ name, spec, derivation }], recheck: false };
  }

  async #target(question: ResolveRequest, budget: Budget, target: NonNullable<Budget["target"]>): Promise<Resolution> {
    const found = await this.#options.workloads.find(question.key, target, question.source.namespace, question.signal);
    if (found.kind === "missing") {
      return { kind: "unresolved", why: `its targetRef can't be followed: ${found.why}` };
    }
    if (found.kind !== "found") return found;
    if (found.selector === undefined) return { kind: "unresolved", why: `${found.what} has no selector` };
    const count = budget.expected ?? found.replicas;
    const how = budget.expected === undefined ? ` (${found.what})` : " (as the budget says)";
    return required(question, budget, found.selector, { count, how, recheck: found.isPolled });
  }

  async #selected(question: ResolveRequest, budget: Budget, selector: LabelSelector): Promise<Resolution> {
    if (!needsExpectedCount(budget)) return required(question, budget, selector, { count: 0, how: "", recheck: false });
    if (budget.expected !== undefined) {
      return required(question, budget, selector, {
        count: budget.expected,
        how: " (as the budget says)",
        recheck: false,
      });
    }
    const { key, source, signal } = question;
    const members = this.#options.pods.of(key, source.namespace, selector);
    if (members === undefined) return { kind: "waiting" };
    if (members.total === 0) return this.#withoutPods(question, budget, selector);
    const found = new Map<string, FoundWorkload>();
    for (const ref of members.controllers) {
      const one = await this.#options.workloads.find(key, ref, source.namespace, signal);
      if (one.kind === "missing") return unresolvable(question, budget, selector, members.total, one.why);
      if (one.kind !== "found") return one;
      found.set(one.uid, one);
    }
    const all = [...found.values()];
    const recheck = all.some(({ isPolled }) => isPolled);
    return required(question, budget, selector, { count: total(all), how: named(all), recheck });
  }

  /** No pod of it is in this cluster. */
  #withoutPods(question: ResolveRequest, budget: Budget, selector: LabelSelector): Resolution {
    const { matches } = compileSelector(selector, "fails");
    const found = this.#options.workloads.byTemplate(question.key, question.source.namespace, matches);
    if (found === undefined) return { kind: "waiting" };
    const all = found.filter((one) => one.kind === "found");
    // One that is scaled to zero says so; one that is there no more may have been erased, with its pods running elsewhere.
    if (all.length === 0 && (question.present?.spec.minAvailable ?? 0) > 0) {
      return unresolvable(question, budget, selector, 0, "no workload with such pods is there any more");
    }
    return required(question, budget, selector, { count: total(all), how: named(all), recheck: false });
  }
}

function total(workloads: readonly FoundWorkload[]): number {
  return workloads.reduce((sum, { replicas }) => sum + replicas, 0);
}

function named(workloads: readonly FoundWorkload[]): string {
  const texts = workloads.map(({ what, replicas }) => `${what} ${replicas}`).sort();
  if (texts.length === 0) return " (no workload matches)";
  const more = texts.length > MAX_NAMED ? ` and ${texts.length - MAX_NAMED} more` : "";
  return ` (${texts.slice(0, MAX_NAMED).join(", ")}${more})`;
}

function required(
  question: ResolveRequest,
  budget: Budget,
  selector: LabelSelector,
  expected: { readonly count: number; readonly how: string; readonly recheck: boolean },
): Resolution {
  const minimum = disruptionMinimum(budget, expected.count, expected.how);
  if (minimum === undefined) return { kind: "unresolved", why: "its minAvailable or maxUnavailable can't be read" };
  const protectors = [protectorOf(question, budget, selector, minimum.minAvailable, minimum.derivation)];
  return { kind: "resolved", protectors, recheck: expected.recheck };
}

/**
 * The disruption controller allows no eviction while it can't tell how many pods there should be, and leaves `desiredHealthy` as it
 * was. So does this: what is required stays, and is all there are where nothing was required yet.
 */
function unresolvable(
  question: ResolveRequest,
  budget: Budget,
  selector: LabelSelector,
  pods: number,
  why: string,
): Resolution {
  const kept = question.present?.spec.minAvailable;
  const minAvailable = kept ?? pods;
  const how = kept === undefined ? "as many as there are" : "kept as it was";
  const derivation = `how many pods there should be is unknown (${why}): minAvailable ${minAvailable}, ${how}`;
  const protectors = [protectorOf(question, budget, selector, minAvailable, derivation)];
  return { kind: "resolved", protectors, recheck: true, why };
}

/**
 * One that was made again after it had vanished is there before its controller has counted anything: that is no reason to let the pods of the
 * one before it go. Its status shows in the watch.
 */
function uncounted({ present }: ResolveRequest, { required }: Extract<Need, { kind: "status" }>): RequiredProtector {
  if (present === undefined) return required;
  const { minAvailable } = present.spec;
  const derivation = `its controller has counted nothing yet: minAvailable ${minAvailable}, kept as it was`;
  return { ...required, spec: { ...required.spec, minAvailable }, derivation };
}

function protectorOf(
  { key, source }: ResolveRequest,
  budget: Budget,
  counted: LabelSelector,
  minAvailable: number,
  derivation: string,
): RequiredProtector {
  const plugin = key.slice(0, key.indexOf("/"));
  const { selector, note } = without(counted, budget.exempt);
  const isNarrower = selector !== counted;
  return {
    name: `${plugin}-${source.name}`,
    spec: {
      minAvailable,
      minReadySeconds: 0,
      selector,
      ...(isNarrower ? { aggregationSelector: counted } : {}),
      ...budget.spec,
    },
    derivation: `${derivation}${note}`,
    owns: budget.owns,
  };
}
