/**
 * The pod as every part of the project sees it: parsed once at the edge and trimmed to the fields in use (design 8), so
 * that 100,000 of them fit into memory.
 */

export type PodPhase = "Pending" | "Running" | "Succeeded" | "Failed" | "Unknown";

/** One pod condition. `sinceMs` is its lastTransitionTime in Unix milliseconds (0 when absent). */
export interface PodCondition {
  readonly type: string;
  readonly status: boolean;
  readonly sinceMs: number;
}

export interface Pod {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion: string;
  readonly generation: number;
  readonly labels: Readonly<Record<string, string>>;
  /** Only the annotations that the project reads (`annotations.ts`), undefined when there is none of them. */
  readonly annotations: Readonly<Record<string, string>> | undefined;
  /** `metadata.deletionTimestamp` is set. */
  readonly terminating: boolean;
  readonly phase: PodPhase;
  readonly conditions: readonly PodCondition[];
  /** `spec.readinessGates[].conditionType`, undefined when there is none. */
  readonly readinessGates: readonly string[] | undefined;
  /** `spec.nodeName` is set. */
  readonly scheduled: boolean;
  /** Annotation `kubernetes.io/config.mirror`: the API's shadow of a static pod, whose deletion stops nothing. */
  readonly mirror: boolean;
}
