/** The events that logs, metrics and Kubernetes Events are made of (`observe.ts`). */
import type { ObjectReference } from "../../../shared/observe/event-recorder.ts";
import { GROUP, KIND, VERSION } from "../../../shared/schema/annotations.ts";
import { apiVersionOf, type ProtectionSource, type SourceKind } from "../sources/protection-source.ts";
import type { ReleaseReason } from "./plan.ts";

export type Problem = "ignored" | "unresolved" | "namespaceTerminating";

/** A protector by its name, and its source by its key. */
interface ProtectorOfSource {
  readonly source: string;
  readonly protector: string;
}

export type GeneratorEvent =
  /** The finalizer was put on the source, or removed from it. */
  | { readonly kind: "held" | "letGo"; readonly source: string }
  /** `noted`: the conditions about the source were written. */
  | ({ readonly kind: "created" | "updated" | "restored" | "replaced" | "noted" } & ProtectorOfSource)
  | ({ readonly kind: "released"; readonly reason: ReleaseReason } & ProtectorOfSource)
  /** The status of a budget was written, or removed because the budget is not protected any more. */
  | { readonly kind: "statusWritten"; readonly source: string }
  /** The status of a budget is another manager's, and is left as it is. */
  | { readonly kind: "statusLeft"; readonly source: string; readonly manager: string }
  /** A protector that was deleted without a release can't be created again now: it stays in force as it is. */
  | ({ readonly kind: "kept"; readonly uid: string; readonly why: string } & ProtectorOfSource)
  /** The source is gone without a release of this protector. Once for each time that it vanishes. */
  | ({ readonly kind: "sourceVanished"; readonly uid: string } & ProtectorOfSource)
  /**
   * A source that came back without asking for protection was made to ask; a deletion waits, because the source asks
   * for replicas. One each about the source and its protector.
   */
  | ({ readonly kind: "adopted" | "deletionHeld"; readonly about: ObjectReference } & ProtectorOfSource)
  | { readonly kind: "cellsRemoved"; readonly protector: string; readonly cells: readonly string[] }
  /** Segments of the release register were deleted that no cell needs any more. */
  | { readonly kind: "registerDropped"; readonly segments: number }
  /** The release register grows, because these cells do not acknowledge it. */
  | { readonly kind: "registerBlocked"; readonly cells: readonly string[] }
  /** A source can't be protected as it asks. */
  | { readonly kind: Problem; readonly source: string; readonly about: ObjectReference; readonly why: string }
  /** An optional kind was installed or uninstalled. */
  | { readonly kind: "kindServed" | "kindGone"; readonly served: SourceKind }
  | { readonly kind: "failed"; readonly source: string; readonly tag: string; readonly error: Error };

export const PROTECTOR_KIND = { apiVersion: `${GROUP}/${VERSION}`, kind: KIND };

export function referenceTo(kind: SourceKind, { namespace, name, uid }: ProtectionSource): ObjectReference {
  return { apiVersion: apiVersionOf(kind), kind: kind.kind, namespace, name, uid };
}

/** Reports a problem of a source once, and again when it changes. Holds one text for each source with a problem. */
export class ProblemReports {
  readonly #reported = new Map<string, string>();
  readonly #onEvent: (event: GeneratorEvent) => void;

  constructor(onEvent: (event: GeneratorEvent) => void) {
    this.#onEvent = onEvent;
  }

  /** `why` is undefined when there is no problem. */
  report(
    key: string,
    problem: Problem,
    sourceKind: SourceKind,
    source: ProtectionSource | undefined,
    why: string | undefined,
  ): void {
    if (source === undefined || why === undefined) {
      this.#reported.delete(key);
      return;
    }
    const text = `${problem} ${source.uid} ${why}`;
    if (this.#reported.get(key) === text) return;
    this.#reported.set(key, text);
    this.#onEvent({ kind: problem, source: key, about: referenceTo(sourceKind, source), why });
  }
}
