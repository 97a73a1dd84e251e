/** The events that `observe.ts` turns into log lines, metrics and Kubernetes Events. */
import type { ObjectReference } from "../../../shared/observe/event-recorder.ts";
import type { Clock } from "../../../shared/runtime/clock.ts";
import { GROUP, KIND, VERSION } from "../../../shared/schema/annotations.ts";
import { apiVersionOf, type ProtectionSource, type SourceKind } from "../sources/protection-source.ts";
import type { ReleaseReason } from "./plan.ts";

/**
 * `refused`: the core denies a write that the protection needs, such as by a policy, a quota of objects or a webhook
 * that is down. `undone`: it accepts a repair that then has no effect.
 */
export const PROBLEMS = ["ignored", "unresolved", "namespaceTerminating", "refused", "undone"] as const;
export type Problem = (typeof PROBLEMS)[number];

/** A protector by its name, and its source by its key. */
interface ProtectorOfSource {
  readonly source: string;
  readonly protector: string;
}

export type GeneratorEvent =
  /** The finalizer was added to the source, or removed from it. */
  | { readonly kind: "held" | "letGo"; readonly source: string }
  /** `noted`: the conditions about the source were written. */
  | ({ readonly kind: "created" | "updated" | "restored" | "replaced" | "noted" } & ProtectorOfSource)
  | ({ readonly kind: "released"; readonly reason: ReleaseReason } & ProtectorOfSource)
  /** The status of a budget was written, or removed because the budget is no longer protected. */
  | { readonly kind: "statusWritten"; readonly source: string }
  /** Another manager owns the status of a budget, so the generator does not write it. */
  | { readonly kind: "statusLeft"; readonly source: string; readonly manager: string }
  /** A protector that was deleted without a release can't be created again now, so the deleted one stays in force. */
  | ({ readonly kind: "kept"; readonly uid: string; readonly why: string } & ProtectorOfSource)
  /** The source is gone without a release of this protector. Emitted once each time that the source vanishes. */
  | ({ readonly kind: "sourceVanished"; readonly uid: string } & ProtectorOfSource)
  /**
   * `adopted`: a source came back without asking for protection, and the generator made it ask. `deletionHeld`: a
   * deletion waits because the source asks for replicas. One event about the source, and one about its protector.
   */
  | ({ readonly kind: "adopted" | "deletionHeld"; readonly about: ObjectReference } & ProtectorOfSource)
  /** `cellsHeld`: nobody has written the entries of these cells since the core was restored. */
  | { readonly kind: "cellsRemoved" | "cellsHeld"; readonly protector: string; readonly cells: readonly string[] }
  /** Segments of the release register that no cell needs any more were deleted. */
  | { readonly kind: "registerDropped"; readonly segments: number }
  /** The release register grows, because these cells do not acknowledge it. */
  | { readonly kind: "registerBlocked"; readonly cells: readonly string[] }
  /** A source can't get the protection that it asks for. */
  | { readonly kind: Problem; readonly source: string; readonly about: ObjectReference; readonly why: string }
  /** An optional kind was installed or uninstalled. */
  | { readonly kind: "kindServed" | "kindGone"; readonly served: SourceKind }
  | { readonly kind: "failed"; readonly source: string; readonly tag: string; readonly error: Error };

export const PROTECTOR_KIND = { apiVersion: `${GROUP}/${VERSION}`, kind: KIND };

export function referenceTo(kind: SourceKind, { namespace, name, uid }: ProtectionSource): ObjectReference {
  return { apiVersion: apiVersionOf(kind), kind: kind.kind, namespace, name, uid };
}

/** Problems that exclude each other share an aspect: the one replaces the other. */
const ASPECTS: Readonly<Record<Problem, string>> = {
  ignored: "source",
  unresolved: "source",
  namespaceTerminating: "namespace",
  refused: "write",
  undone: "repair",
};

const REPEAT_MS = 30 * 60_000;

interface Reported {
  readonly problem: Problem;
  readonly text: string;
  /** Monotonic. */
  readonly atMs: number;
}

/**
 * Reports a problem of a source once, again when the problem changes, and every half hour while it is found: Events
 * live for an hour. Stores one text for each source with a problem.
 */
export class ProblemReports {
  readonly #reported = new Map<string, Reported>();
  readonly #clock: Clock;
  readonly #onEvent: (event: GeneratorEvent) => void;

  constructor(clock: Clock, onEvent: (event: GeneratorEvent) => void) {
    this.#clock = clock;
    this.#onEvent = onEvent;
  }

  /** How many sources have the problem now. */
  count(problem: Problem): number {
    let sources = 0;
    for (const reported of this.#reported.values()) if (reported.problem === problem) sources++;
    return sources;
  }

  has(key: string, problem: Problem): boolean {
    return this.#reported.get(`${key}#${ASPECTS[problem]}`)?.problem === problem;
  }

  /** Without a problem, `why` is undefined. */
  report(
    key: string,
    problem: Problem,
    sourceKind: SourceKind,
    source: ProtectionSource | undefined,
    why: string | undefined,
  ): void {
    const aspect = `${key}#${ASPECTS[problem]}`;
    if (source === undefined || why === undefined) {
      this.#reported.delete(aspect);
      return;
    }
    const text = `${problem} ${source.uid} ${why}`;
    const atMs = this.#clock.monotonicMs();
    const last = this.#reported.get(aspect);
    if (last?.text === text && atMs < last.atMs + REPEAT_MS) return;
    this.#reported.set(aspect, { problem, text, atMs });
    this.#onEvent({ kind: problem, source: key, about: referenceTo(sourceKind, source), why });
  }
}
