/**
 * Repairs that somebody undoes: an admission policy or webhook of the core, or a CRD without the field, while it stores
 * them, or another controller afterwards. Each is repeated, at growing intervals, so that the generator is no party to
 * an endless quarrel.
 */
import { isDeepStrictEqual } from "node:util";
import type { Clock } from "../../../shared/runtime/clock.ts";
import type { PodProtector } from "../../../shared/schema/podprotector.ts";
import type { ProtectionSource } from "../sources/protection-source.ts";
import type { ReconcileStep, SourceFacts } from "./plan.ts";
import { sourceStateOf } from "./source-condition.ts";

/** Repairs of the same field to the same value that are made at once: people make a change twice, too. */
const AT_ONCE = 3;
const FIRST_WAIT_MS = 1_000;
const MAX_WAIT_MS = 60_000;
/** Longer than every wait. */
const FORGET_MS = 900_000;
/** Fields that a report names. */
const MAX_NAMED = 5;
/** Values of one field that are remembered: what a repair keeps of others' entries makes each a value of its own. */
const MAX_VALUES = 8;

interface Change {
  readonly before?: unknown;
  readonly after: unknown;
}

interface Repair {
  readonly target: string;
  readonly uid: string;
  /** By the path of the field. */
  readonly changes: ReadonlyMap<string, Change>;
}

/** Repairs of one field to one value. */
interface Made {
  readonly value: unknown;
  readonly times: number;
  readonly atMs: number;
}

interface Target {
  readonly uid: string;
  /** The values by the path of the field; the last one that was written comes last. */
  readonly fields: Map<string, readonly Made[]>;
}

function repairOf(step: ReconcileStep): Repair | undefined {
  const ofSource = ({ uid }: ProtectionSource, path: string): Repair => {
    return { target: "/", uid, changes: new Map([[path, { after: step.kind }]]) };
  };
  switch (step.kind) {
    case "update": {
      const { name, uid } = step.object.metadata;
      return { target: name, uid, changes: changedFields(step.protector, step.object) };
    }
    case "setSourceState": {
      const { name, uid } = step.protector.metadata;
      const change = { before: sourceStateOf(step.protector), after: step.state };
      return { target: `${name}/status`, uid, changes: new Map([["status.conditions", change]]) };
    }
    case "addSourceFinalizer":
      return ofSource(step.source, "metadata.finalizers");
    case "adopt":
      return ofSource(step.source, "metadata.annotations");
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

function changedFields(present: PodProtector, wanted: PodProtector): Map<string, Change> {
  const [before, after] = [fieldsOf(present), fieldsOf(wanted)];
  const paths = [...new Set([...before.keys(), ...after.keys()])];
  const changed = paths.filter((path) => !isDeepStrictEqual(before.get(path), after.get(path)));
  return new Map(changed.map((path) => [path, { before: before.get(path), after: after.get(path) }]));
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
  /** What was repaired, by source and target; the source that was repaired last comes last. */
  readonly #bySource = new Map<string, Map<string, Target>>();

  constructor(clock: Pick<Clock, "monotonicMs">) {
    this.#clock = clock;
  }

  /** True for a repair that is to wait. One of another field, or to another value than before, never does. */
  isWaiting(source: string, step: ReconcileStep): boolean {
    const targets = this.#bySource.get(source);
    const repair = targets === undefined ? undefined : repairOf(step);
    const target = repair && targets?.get(repair.target);
    if (repair === undefined || repair.changes.size === 0 || target?.uid !== repair.uid) return false;
    return [...repair.changes].every(([path, { after }]) => {
      const made = target.fields.get(path)?.find(({ value }) => isDeepStrictEqual(value, after));
      return made !== undefined && this.#waitMs(made) > 0;
    });
  }

  /** The step was made; `undone` when the response says that it had no effect. `stored` is what the core has now. */
  made(source: string, step: ReconcileStep, undone: boolean, stored: SourceFacts["named"]): void {
    // The source gave its protection up, and may ask for it again.
    if (step.kind === "removeSourceFinalizer") this.#bySource.get(source)?.delete("/");
    const repair = repairOf(step);
    if (repair === undefined) return;
    this.#forget();
    const targets = this.#bySource.get(source) ?? new Map<string, Target>();
    const { target, uid, changes } = repair;
    const known = targets.get(target);
    const fields: Target["fields"] = known?.uid === uid ? known.fields : new Map();
    const kept = undoneFields(step, stored(target));
    for (const [path, change] of changes) {
      // Others of the same write may have had their effect.
      const hasNoEffect = kept.length > 0 ? kept.includes(path) : undone;
      fields.set(path, this.#withChange(fields.get(path) ?? [], change, hasNoEffect));
    }
    targets.set(target, { uid, fields });
    this.#bySource.delete(source);
    this.#bySource.set(source, targets);
  }

  /**
   * Several values of a field are remembered, because somebody may undo them in turn. Where the last one is still
   * there, nobody undoes any: the source asks for another one.
   */
  #withChange(values: readonly Made[], { before, after }: Change, hasNoEffect: boolean): readonly Made[] {
    const isFollowed = isDeepStrictEqual(values.at(-1)?.value, before);
    const known = isFollowed ? undefined : values.find(({ value }) => isDeepStrictEqual(value, after));
    const times = (known?.times ?? 0) + 1;
    const made = { value: after, times: hasNoEffect ? Math.max(times, AT_ONCE) : times, atMs: this.#nowMs() };
    const others = isFollowed ? [] : values.filter((one) => one !== known).slice(1 - MAX_VALUES);
    return [...others, made];
  }

  /** Milliseconds until the next repair of the source that waits; undefined when none does. */
  nextMs(source: string): number | undefined {
    const targets = [...(this.#bySource.get(source)?.values() ?? [])];
    const waits = targets.flatMap(({ fields }) => [...fields.values()].flat()).map((made) => this.#waitMs(made));
    const positive = waits.filter((waitMs) => waitMs > 0);
    return positive.length === 0 ? undefined : Math.min(...positive);
  }

  /** What has no effect on this source and its protectors, for people. */
  why(source: string): string | undefined {
    this.#forget();
    for (const [target, { fields: made }] of this.#bySource.get(source) ?? []) {
      const fields = [...made.keys()].filter((path) => made.get(path)?.some(({ times }) => times >= AT_ONCE));
      if (fields.length === 0) continue;
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
    for (const [source, targets] of this.#bySource) {
      for (const [target, { fields }] of targets) {
        for (const [path, values] of fields) {
          const young = values.filter(({ atMs }) => atMs >= sinceMs);
          if (young.length > 0) fields.set(path, young);
          else fields.delete(path);
        }
        if (fields.size === 0) targets.delete(target);
      }
      if (targets.size > 0) break;
      this.#bySource.delete(source);
    }
  }

  #nowMs(): number {
    return this.#clock.monotonicMs();
  }
}
