/** What the generator tells those who observe it (logs, metrics, Kubernetes Events); carries what a person needs to act. */

import type { SourceKind } from "../sources/protection-source.ts";
import type { ReleaseReason } from "./plan.ts";

export type Problem = "ignored" | "unresolved" | "namespaceTerminating";

/** The object that an event is about, as Kubernetes Events refer to it. */
interface SourceReference {
  readonly apiVersion: string;
  readonly kind: string;
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
}

export type GeneratorEvent =
  | { readonly kind: "held" | "letGo"; readonly source: string }
  | {
      readonly kind: "created" | "updated" | "restored" | "replaced";
      readonly source: string;
      readonly protector: string;
    }
  /** Somebody has deleted it, and it can't be made anew: it stays in force as it is. */
  | {
      readonly kind: "kept";
      readonly source: string;
      readonly protector: string;
      readonly uid: string;
      readonly why: string;
    }
  /** Parts of the register of releases that nobody needs any more are gone. */
  | { readonly kind: "registerDropped"; readonly segments: number }
  | { readonly kind: "released"; readonly source: string; readonly protector: string; readonly reason: ReleaseReason }
  | { readonly kind: "cellsRemoved"; readonly protector: string; readonly cells: readonly string[] }
  /** Told once for each protector whose source vanished, and again when that has changed. */
  | { readonly kind: "orphaned"; readonly source: string; readonly protector: string; readonly uid: string }
  /** A protector's condition `SourceVanished` was written. */
  | { readonly kind: "noted"; readonly source: string; readonly protector: string }
  /** Told once for each object that asks for protection and can't have it, and again when why has changed. */
  | {
      readonly kind: Problem;
      readonly source: string;
      readonly about: SourceReference;
      readonly why: string;
    }
  /** A kind that need not be installed has come or gone. */
  | { readonly kind: "kindServed" | "kindGone"; readonly served: SourceKind }
  | { readonly kind: "failed"; readonly source: string; readonly tag: string; readonly error: Error };
