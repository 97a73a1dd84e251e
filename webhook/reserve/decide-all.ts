/**
 * Decides disruptions that stand or fall together (docs/design.md#node-deletion): all are reserved, or none. First all
 * are evaluated without a write, those of one protector in one batch. Then each is reserved. A denial in this second
 * step, because others were faster, rolls the other reservations back.
 */
import { decideTogether } from "../../shared/decide/joint-decision.ts";
import type { MaybePromise } from "../../shared/runtime/maybe-promise.ts";
import type { Disruption } from "./pipeline.ts";
import { type Allowance, type Denial, idOf, unenforcedIn, type Verdict } from "./verdict.ts";

/** One protector's denial, and the pods that it is about. */
export interface DeniedPods {
  readonly denial: Denial;
  readonly pods: readonly Disruption["pod"][];
}

export type JointVerdict =
  | {
      readonly kind: "allowed";
      readonly decisions: readonly Allowance[];
      /** Denials by protectors that do not enforce their decisions. */
      readonly unenforced?: readonly DeniedPods[];
    }
  | {
      readonly kind: "denied";
      readonly denied: readonly DeniedPods[];
      /** To be called once the denial is delivered. */
      readonly rollBack: (() => void) | undefined;
    }
  | Extract<Verdict, { readonly kind: "failed" | "abandoned" }>;

interface Decider {
  readonly decide: (disruption: Disruption) => MaybePromise<Verdict>;
}

export async function decideAll(pipeline: Decider, disruptions: readonly Disruption[]): Promise<JointVerdict> {
  const together = { decide: decideTogether };
  const evaluated = await decideEach(
    pipeline,
    disruptions.map((one) => ({ ...one, together })),
  );
  if (evaluated.kind !== "allowed") return evaluated;
  return await decideEach(pipeline, disruptions);
}

/** All at once, so that one batch decides the pods of one protector. */
async function decideEach(pipeline: Decider, disruptions: readonly Disruption[]): Promise<JointVerdict> {
  const verdicts = await Promise.all(disruptions.map((one) => pipeline.decide(one)));
  const denied = byProtector(disruptions, verdicts, (verdict) => (verdict.kind === "denied" ? verdict.decisions : []));
  if (denied.length > 0) return { kind: "denied", denied, rollBack: rollBackOf(verdicts) };
  for (const verdict of verdicts) if (verdict.kind === "failed" || verdict.kind === "abandoned") return verdict;
  const decisions = verdicts.flatMap((one) => (one.kind === "allowed" ? one.decisions : []));
  const unenforced = byProtector(disruptions, verdicts, (one) =>
    one.kind === "allowed" ? unenforcedIn(one.decisions) : [],
  );
  return { kind: "allowed", decisions, ...(unenforced.length > 0 && { unenforced }) };
}

function byProtector(
  disruptions: readonly Disruption[],
  verdicts: readonly Verdict[],
  denialsOf: (verdict: Verdict) => readonly Denial[],
): readonly DeniedPods[] {
  const found = new Map<string, { denial: Denial; pods: Disruption["pod"][] }>();
  for (const [index, { pod }] of disruptions.entries()) {
    const verdict = verdicts[index];
    for (const denial of verdict === undefined ? [] : denialsOf(verdict)) {
      const id = idOf(denial.protector);
      const known = found.get(id);
      if (known === undefined) found.set(id, { denial, pods: [pod] });
      else known.pods.push(pod);
    }
  }
  return [...found.values()];
}

function rollBackOf(verdicts: readonly Verdict[]): (() => void) | undefined {
  const all = verdicts.flatMap((one) =>
    (one.kind === "allowed" || one.kind === "denied") && one.rollBack !== undefined ? [one.rollBack] : [],
  );
  return all.length === 0 ? undefined : () => all.forEach((rollBack) => void rollBack());
}
