/**
 * What a run has met: faults, verdicts, rows of the admission table, rules. A row at zero after many seeds is a gap in
 * the simulation.
 */
import type { RecoveryEvent } from "../../../shared/recovery/recovery-events.ts";
import { ACCIDENTS } from "../accidents/accident.ts";
import { DELETION_STEPS, type DeletionStep } from "../apiserver/pod-deletion.ts";
import { FAULT_KINDS, type FaultKind } from "../scenario/scenario.ts";
import { ADMISSION_ROWS, type AdmissionTableRow } from "./admission-rows.ts";

/** Verdicts of the admission table (docs/design.md#admission-table) that these worlds can reach. */
const EXPECTED_VERDICTS = [
  ...["Reserved", "Repeated", "PinnedImmature", "Unavailable", "Forced", "Suspended", "without a protector"].map(
    (reason) => `delete allowed ${reason}`,
  ),
  ...["AtMinimum", "Reserved", "OnHold", "NotCounted", "UnhealthyBudget"].map((reason) => `delete 429 ${reason}`),
  ...["Reserved", "Repeated", "PinnedImmature", "PinnedUnavailable", "Forced", "Suspended"].map(
    (reason) => `evict allowed ${reason}`,
  ),
  ...["AtMinimum", "Reserved", "OnHold", "NotCounted", "UnhealthyBudget"].map((reason) => `evict 429 ${reason}`),
  ...["Reserved", "Repeated", "PinnedUnavailable", "without a protector"].map((reason) => `change allowed ${reason}`),
  ...["AtMinimum", "Reserved"].map((reason) => `change 429 ${reason}`),
  ...["Reserved", "Repeated"].map((reason) => `end allowed ${reason}`),
  ...["AtMinimum", "Reserved"].map((reason) => `end 429 ${reason}`),
  ...["Reserved", "Repeated"].map((reason) => `gate allowed ${reason}`),
  "gate 429 AtMinimum",
  ...["node allowed without a protector", "node 429 TooManyTogether", "node 429 AtMinimum"],
  ...["Probe:refused", "Probe:failed", "Probe:down", "PreActivity"].map((reason) => `delete 429 ${reason}`),
  ...["evict 404 without a protector", "http 500"],
];

/** What has to happen in these worlds, as the components report it. */
const RULES = [
  "R1",
  "R2",
  "R3",
  "StalePosition",
  "StaleEpoch",
  "hold Behind",
  "hold Gone",
  "hold Recreated",
  "hold CellRestored",
  "evidence get",
  "evidence list",
  "weight follows availability",
  "reserved again after a loss",
  "rolled back",
  "decided again after a conflict",
  "decided together",
  "looked for after a write without a response",
  "denial confirmed by a read",
  "responded at the deadline",
  "decided by quota after a suspension",
  "owner: allowed",
  "owner: refused",
  "owner: failed",
  "owner: down",
  "gate opened: Counted",
  "gate opened: Overdue",
  "a counted condition is lost",
  "node-lifecycle: Ready alone",
  "node-lifecycle: Ready of a gated pod alone",
  "a kubelet dies while its pod waits for gates",
  "a pod can't be read",
  "a pod's times are out of range",
  "a pod is relabelled out of its protectors",
  "a pod is relabelled while its disruption can commit",
  "a workload controller backs off",
  "a workload controller comes back late",
  "a workload is told of a denial to its controller",
  "a mirror pod is there",
  "a mirror pod is deleted",
  "the webhook can't write a protector that is too large",
  "the aggregator can't write a protector that is too large",
  "two configurations: one allows and the other denies",
  "generator: created",
  "generator: updated",
  "generator: restored",
  "generator: replaced",
  "generator: released",
  "generator: sourceVanished",
  "generator: killed",
  "generator: two lead for a while",
  "denied for a lost protector",
  "UpdateDone",
  "a restart fails for a while",
  "a resize is deferred",
  "a resize is infeasible",
  "a second change while the first is in progress",
  "a pod is deleted while it restarts",
  "finalizers: a pod is held",
  "finalizers: a foreground deletion",
  "finalizers: the pod goes with its last one",
  "a runtime reports another name",
  "deadlines: a pod is over",
  "gates: a pod is taken out of service",
  "gates: a pod stays in service",
  "gates: a pod is back in service",
  "the clocks of nodes are ahead",
  "the clocks of nodes are behind",
  "the clocks of nodes are set right",
  "client-go obeys Retry-After",
  "taint eviction: came back after Retry-After",
  "taint eviction: forgotten after five tries",
  "nodes: a deletion is allowed",
  "nodes: a deletion is denied",
  "nodes: a pod of an allowed deletion is checked",
  "nodes: one is removed unasked",
  "nodes: a pod is collected",
  "nodes: a collection is denied",
  "shards: counted while one is behind",
  "shards: counted in another number of them",
  "shards: a reservation in one that is behind",
  "shards: one is out of reach",
  "shards: one is silent",
  "shards: one is slow",
  "shards: one is cut",
  "shards: one lags",
  "shards: one server restarts",
  "shards: one is relisted",
  "shards: one shows a restore",
  "shards: one finds a restored cell late",
] as const;
/** What the aggregators report of backups. */
const BACKUP_EVENTS = [
  "copied",
  "copyFailed",
  "vanished",
  "recreated",
  "recreateFailed",
  "acknowledged",
  "coreWentBack",
] as const satisfies readonly RecoveryEvent["kind"][];
/** What has to happen in worlds with backups. */
const BACKUP_RULES = [
  // Of protectors.
  ...["a protector is lost", "deleted from storage", "stripped and deleted", "the CRD is deleted", "a core is emptied"],
  ...["a protector is released", "created again by hand"],
  // Of components that write and read backups.
  ...["a cell out of reach", "a core out of reach", "two leaders create the same chunk"],
  "a restored cell brings back old backups",
  ...BACKUP_EVENTS,
  // Of replicas.
  "denied by a replica that started after the loss",
  "allowed by a replica that could not know of the loss",
].map((rule) => `backups: ${rule}`);
export type SeenRule = (typeof RULES)[number] | DeletionStep | "owner: overloaded";

export class Coverage {
  readonly faults = new Map<string, number>(FAULT_KINDS.map((kind) => [kind, 0]));
  readonly verdicts = new Map<string, number>(EXPECTED_VERDICTS.map((name) => [name, 0]));
  /** Rows of the admission table. */
  readonly rows = new Map<string, number>(ADMISSION_ROWS.map((row) => [row, 0]));
  readonly rules = new Map<string, number>(
    [...RULES, ...DELETION_STEPS, ...BACKUP_RULES, ...ACCIDENTS].map((rule) => [rule, 0]),
  );

  fault(kind: FaultKind): void {
    add(this.faults, kind, 1);
  }

  verdict(name: string): void {
    add(this.verdicts, name, 1);
  }

  row(row: AdmissionTableRow): void {
    add(this.rows, row, 1);
  }

  rule(name: string): void {
    add(this.rules, name, 1);
  }

  /** Adds the counts of another run, which may come from another process as plain objects. */
  merge(other: CoverageCounts): void {
    for (const [name, count] of Object.entries(other.faults)) add(this.faults, name, count);
    for (const [name, count] of Object.entries(other.verdicts)) add(this.verdicts, name, count);
    for (const [name, count] of Object.entries(other.rows)) add(this.rows, name, count);
    for (const [name, count] of Object.entries(other.rules)) add(this.rules, name, count);
  }

  counts(): CoverageCounts {
    return {
      faults: Object.fromEntries(this.faults),
      verdicts: Object.fromEntries(this.verdicts),
      rows: Object.fromEntries(this.rows),
      rules: Object.fromEntries(this.rules),
    };
  }
}

export interface CoverageCounts {
  readonly faults: Readonly<Record<string, number>>;
  readonly verdicts: Readonly<Record<string, number>>;
  readonly rows: Readonly<Record<string, number>>;
  readonly rules: Readonly<Record<string, number>>;
}

function add(counts: Map<string, number>, name: string, count: number): void {
  counts.set(name, (counts.get(name) ?? 0) + count);
}
