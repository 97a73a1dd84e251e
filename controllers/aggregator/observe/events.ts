/** What happens in an aggregator, as typed events; `observer.ts` shows them as metrics and log lines. */

import type { StaleSnapshot } from "../../../shared/decide/settling/cell-update.ts";
import type { SettleRule } from "../../../shared/decide/settling/settle-history.ts";
import type { ApiFailure } from "../../../shared/kube/client/api-result.ts";
import type { Operation, ProtectorId } from "../../../shared/schema/podprotector.ts";

/** What showed that the cell's etcd was restored to an older state. */
export const RESTORE_SIGNS = ["version", "counter", "stored"] as const;
export type RestoreSign = (typeof RESTORE_SIGNS)[number];

/** Why a gate was opened; the reason of the condition, and a metric label. */
export const GATE_REASONS = ["Counted", "Unprotected", "Overdue"] as const;
export type GateReason = (typeof GATE_REASONS)[number];

/** Why a status was written. */
export const WRITE_CAUSES = ["changed", "heartbeat"] as const;
type WriteCause = (typeof WRITE_CAUSES)[number];

/** Results of a reconcile. */
export const RECONCILE_RESULTS = [
  ...(["unchanged", "written", "refused", "waiting"] as const),
  ...(["leftOut", "gone", "failed", "stopped"] as const),
] as const;
export type ReconcileResult = (typeof RECONCILE_RESULTS)[number];

/** Why a pending change was not written (docs/design.md#settling, Fences). */
export const REFUSALS = ["StalePosition", "StaleEpoch"] as const satisfies readonly StaleSnapshot[];

/** The rule that settled a record (docs/design.md#settling, docs/design.md#sync-time-algorithms). */
export const SETTLE_RULES = ["R1", "R2", "R3", "UpdateDone", "Clock"] as const satisfies readonly SettleRule[];

export const EVIDENCE_METHODS = ["get", "list"] as const;
type EvidenceMethod = (typeof EVIDENCE_METHODS)[number];
export const EVIDENCE_RESULTS = ["alive", "dead", "failed", "asked"] as const;

export const VOID_RESULTS = ["done", "gone", "failed"] as const;

export type AggregatorEvent =
  | {
      readonly kind: "reconciled";
      readonly id: ProtectorId;
      readonly result: ReconcileResult;
      readonly durationMs: number;
    }
  | {
      readonly kind: "wrote";
      readonly id: ProtectorId;
      readonly cause: WriteCause;
      /** Time from the oldest pod change in this write to the response; undefined for a write without pod changes. */
      readonly latencyMs: number | undefined;
      readonly durationMs: number;
    }
  | {
      readonly kind: "writeFailed";
      readonly id: ProtectorId;
      readonly failure: ApiFailure["kind"];
      readonly message: string;
    }
  | {
      readonly kind: "dropped";
      readonly id: ProtectorId;
      /** Undefined for a time range. */
      readonly operation: Operation | undefined;
      readonly rule: SettleRule;
    }
  | { readonly kind: "refused"; readonly id: ProtectorId; readonly refusal: StaleSnapshot }
  | { readonly kind: "held"; readonly id: ProtectorId; readonly reason: string; readonly epoch: number }
  | { readonly kind: "released"; readonly id: ProtectorId; readonly heldMs: number | undefined }
  /** The core's CRD drops fields of a count; without positions, upstream's clock rule settles there. */
  | { readonly kind: "fieldsDropped"; readonly core: string; readonly fields: readonly string[] }
  | { readonly kind: "fieldsKept"; readonly core: string }
  /** The cell's etcd shows an older state than before. */
  | { readonly kind: "cellRestored"; readonly how: RestoreSign; readonly from: string; readonly to: string }
  /** Pods that counted are gone without an admission request. */
  | { readonly kind: "vanished"; readonly id: ProtectorId; readonly pods: number; readonly names: readonly string[] }
  | { readonly kind: "corruptHistory"; readonly id: ProtectorId; readonly buckets: number }
  | { readonly kind: "badSelector"; readonly id: ProtectorId; readonly problems: readonly string[] }
  | {
      readonly kind: "evidence";
      readonly method: EvidenceMethod;
      readonly pods: number;
      readonly found: (typeof EVIDENCE_RESULTS)[number];
    }
  | { readonly kind: "gateOpened"; readonly podName: string; readonly reason: GateReason; readonly waitedMs: number }
  | { readonly kind: "gateFailed"; readonly podName: string; readonly message: string }
  /** Protectors count pods of this cell under a former id. */
  | { readonly kind: "renamed"; readonly formerCell: string }
  | { readonly kind: "namespaceMarked"; readonly namespace: string }
  | { readonly kind: "namespaceNotMarked"; readonly namespace: string; readonly message: string }
  /** The kubelet defers a pod's resize, whose reservation stays until the resize is done. */
  | { readonly kind: "deferred"; readonly id: ProtectorId; readonly podName: string }
  | {
      readonly kind: "voided";
      readonly id: ProtectorId;
      readonly podName: string;
      readonly result: (typeof VOID_RESULTS)[number];
    };

export type EventSink = (event: AggregatorEvent) => void;
