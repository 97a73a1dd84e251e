/**
 * Repairs that somebody undoes: an admission policy or webhook of the core, or a CRD without the field, while it stores
 * them, or another controller afterwards. Each is repeated, at growing intervals, so that the generator is no party to
 * an endless quarrel.
 */
import { hash } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import type { Clock } from "../../../shared/runtime/clock.ts";
import type { PodProtector } from "../../../shared/schema/podprotector.ts";
import type { ReconcileStep, SourceFacts } from "./plan.ts";

/** Repairs of the same fields to the same values that are made at once: people make a change twice, too. */
const AT_ONCE = 3;
const FIRST_WAIT_MS = 1_000;
const MAX_WAIT_MS = 60_000;
/** Longer than every wait. */
const FORGET_MS = 900_000;
/** Fields that a report names. */
const MAX_NAMED = 5;

interface Repair {
  readonly target: string;
  /** The object by its UID, the fields, and the values that they get. */
  readonly change: string;
  readonly fields: readonly string[];
}

interface Made {
  readonly change: string;
  readonly fields: readonly string[];
  readonly times: number;
  readonly atMs: number;
}

function repairOf(step: ReconcileStep): Repair | undefined {
  switch (step.kind) {
    case "update": {
      const fields = changedFields(step.protector, step.object);
      const { name, uid } = step.object.metadata;
      const change = hash("sha256", JSON.stringify([uid, ...fields]), "base64");
      return { target: name, change, fields: [...fields.keys()] };
    }
    case "setSourceState":
      return { target: `${step.protector.metadata.name}/status`, change: step.state, fields: ["status.conditions"] };
    case "addSourceFinalizer":
      return { target: "/", change: `${step.kind} ${step.source.uid}`, fields: ["metadata.finalizers"] };
    case "adopt":
      return { target: "/", change: `${step.kind} ${step.source.uid}`, fields: ["metadata.annotations"] };
    default:
      return undefined;
  }
}

/** The fields that a repair writes, as paths, with labels and annotations one by one. */
function fieldsOf({ metadata, spec }: PodProtector): Map<string, unknown> {
  const { labels = {}, annotations = {}, finalizers, ownerReferences } = metadata;
  return new Map<string, unknown>([
    ...Object.entries(labels).map(([key, value]) => [`metadata.labels[${key}]`, value] as const),
    ...Object.entries(annotations).map(([key, value]) => [`metadata.annotations[${key}]`, value] as const),
    ["metadata.finalizers", finalizers],
    ["metadata.ownerReferences", ownerReferences],
    ...Object.entries(spec).map(([key, value]) => [`spec.${key}`, value] as const),
  ]);
}

function changedFields(present: PodProtector, wanted: PodProtector): Map<string, unknown> {
  const [before, after] = [fieldsOf(present), fieldsOf(wanted)];
  const paths = [...new Set([...before.keys(), ...after.keys()])];
  const changed = paths.filter((path) => !isDeepStrictEqual(before.get(path), after.get(path)));
  return new Map(changed.map((path) => [path, after.get(path)]));
}

/** The fields that the step has written and that have their earlier values in `stored`. */
function undoneFields(step: ReconcileStep, stored: PodProtector | undefined): readonly string[] {
  if (step.kind !== "update" || stored?.metadata.uid !== step.protector.metadata.uid) return [];
  const [before, now] = [fieldsOf(step.protector), fieldsOf(stored)];
  const changed = [...changedFields(step.protector, step.object).keys()];
  return changed.filter((path) => isDeepStrictEqual(before.get(path), now.get(path)));
}

export class UndoneRepairs {
  readonly #clock: Pick<Clock, "monotonicMs">;
  /** The newest repair of each target, by source; the source that was repaired last comes last. */
  readonly #bySource = new Map<string, Map<string, Made>>();

  constructor(clock: Pick<Clock, "monotonicMs">) {
    this.#clock = clock;
  }

  /** True for a repair that is to wait. Another change than before never does. */
  isWaiting(source: string, step: ReconcileStep): boolean {
    const made = this.#bySource.get(source);
    const repair = made === undefined ? undefined : repairOf(step);
    const before = repair && made?.get(repair.target);
    return before !== undefined && before.change === repair?.change && this.#waitMs(before) > 0;
  }

  /** The step was made; `undone` when the response says that it had no effect. `stored` is what the core has now. */
  made(source: string, step: ReconcileStep, undone: boolean, stored: SourceFacts["named"]): void {
    // The source gave its protection up, and may ask for it again.
    if (step.kind === "removeSourceFinalizer") this.#bySource.get(source)?.delete("/");
    const repair = repairOf(step);
    if (repair === undefined) return;
    this.#forget();
    const made = this.#bySource.get(source) ?? new Map<string, Made>();
    const { target, change, fields } = repair;
    const before = made.get(target);
    const times = (before?.change === change ? before.times : 0) + 1;
    const kept = undoneFields(step, stored(target));
    const hasNoEffect = undone || kept.length > 0;
    made.set(target, {
      change,
      // Others of the same write may have had their effect.
      fields: kept.length > 0 ? kept : fields,
      times: hasNoEffect ? Math.max(times, AT_ONCE) : times,
      atMs: this.#nowMs(),
    });
    this.#bySource.delete(source);
    this.#bySource.set(source, made);
  }

  /** Milliseconds until the next repair of the source that waits; undefined when none does. */
  nextMs(source: string): number | undefined {
    const waits = [...(this.#bySource.get(source)?.values() ?? [])].map((made) => this.#waitMs(made));
    const positive = waits.filter((waitMs) => waitMs > 0);
    return positive.length === 0 ? undefined : Math.min(...positive);
  }

  /** What has no effect on this source and its protectors, for people. */
  why(source: string): string | undefined {
    this.#forget();
    for (const [target, { fields, times }] of this.#bySource.get(source) ?? []) {
      if (times < AT_ONCE) continue;
      const what = target === "/" ? source : `protector ${target.replace(/\/.*/, "")}`;
      const more = fields.length > MAX_NAMED ? ` and ${fields.length - MAX_NAMED} more` : "";
      const named = `${fields.slice(0, MAX_NAMED).join(", ")}${more}`;
      return (
        `the repair of ${named} of ${what} has no effect: an admission policy or webhook, another controller, or a ` +
        "CRD of an earlier version undoes it. It is repeated at growing intervals"
      );
    }
    return undefined;
  }

  #waitMs({ times, atMs }: Made): number {
    if (times < AT_ONCE) return 0;
    return atMs + Math.min(MAX_WAIT_MS, FIRST_WAIT_MS * 2 ** (times - AT_ONCE)) - this.#nowMs();
  }

  #forget(): void {
    const sinceMs = this.#nowMs() - FORGET_MS;
    for (const [source, made] of this.#bySource) {
      for (const [target, { atMs }] of made) if (atMs < sinceMs) made.delete(target);
      if (made.size > 0) break;
      this.#bySource.delete(source);
    }
  }

  #nowMs(): number {
    return this.#clock.monotonicMs();
  }
}
