/** How large a world is. Every number bounds a dimension of the state space. */
export interface Bounds {
  readonly cells: number;
  /** Ready pods of each cell at the beginning. */
  readonly pods: number;
  /** Pods of each cell that are created later. */
  readonly later: number;
  readonly minAvailable: number;
  /** Disruptions that are admitted. Those that are denied change nothing, and are not counted. */
  readonly admissions: number;
  /** Times that a pod changes by itself: it is created, becomes ready or unready, or gets another version. */
  readonly changes: number;
  /** Times that a component fails. */
  readonly faults: number;
  /** `spec.minReadySeconds`: with 1 pods that become ready mature when the clock ticks, once. */
  readonly minReadySeconds: number;
  /** `spec.admissionHistoryConfig.compactThreshold`: with 0 each reservation is packed. */
  readonly compactThreshold: number;
}

export const DEFAULTS: Bounds = {
  cells: 1,
  pods: 2,
  later: 0,
  minAvailable: 1,
  admissions: 2,
  changes: 1,
  faults: 1,
  minReadySeconds: 0,
  compactThreshold: 100,
};
