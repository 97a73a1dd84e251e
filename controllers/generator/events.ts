/** What the generator tells those who observe it (logs, metrics, Kubernetes Events); carries what a person needs to act. */
import type { ReleaseReason } from "./plan.ts";

export type GeneratorEvent =
  | { readonly kind: "held" | "letGo"; readonly source: string }
  | { readonly kind: "created" | "updated"; readonly source: string; readonly protector: string }
  | { readonly kind: "released"; readonly source: string; readonly protector: string; readonly reason: ReleaseReason }
  | { readonly kind: "cellsRemoved"; readonly protector: string; readonly cells: readonly string[] }
  /** Told once for each protector whose source vanished, and again when that has changed. */
  | { readonly kind: "orphaned"; readonly source: string; readonly protector: string; readonly uid: string }
  | { readonly kind: "failed"; readonly source: string; readonly tag: string; readonly error: Error };
