import type { Pod } from "../../../shared/schema/pod.ts";
import type { PodProtector } from "../../../shared/schema/podprotector.ts";

/** Which protector of which core cluster. */
export interface ProtectorId {
  readonly core: string;
  readonly namespace: string;
  readonly name: string;
}

/**
 * One protector with the pods of the cell that it counts. Lives as long as the protector is there, whoever leads; its identity is the
 * key of queues and indexes. All of it is kept current by {@link Membership}.
 */
export interface TrackedProtector {
  readonly id: ProtectorId;
  /** As the watch has it. */
  protector: PodProtector;
  /** By UID: the pods that match the counted selector, in whatever state. */
  readonly pods: Map<string, Pod>;
  /** What could not be read of its counted selector; it counts nothing then. */
  problems: readonly string[];
}
