/**
 * Which new pods get the counted readiness gate (docs/design.md#counted-gate): those whose protector or namespace asks
 * for it, in a cell that an aggregator counts. A pod whose gate no aggregator opens never becomes Ready. So a pod stays
 * unchanged without a protector, while a cache may be old, and in a cell that was never counted or whose aggregator is
 * silent.
 */

import type { PatchOperation } from "../../shared/schema/admission.ts";
import {
  COUNTED_CONDITION,
  COUNTED_GATE,
  MIRROR_POD_ANNOTATION,
  PART_OF_LABEL,
  PART_OF_PODSEIDON,
} from "../../shared/schema/annotations.ts";
import { valueAt } from "../../shared/schema/check.ts";
import type { PodProtector } from "../../shared/schema/podprotector.ts";
import { parseMs } from "../../shared/schema/time.ts";
import type { AdmissionRequest } from "./admission-request.ts";

/**
 * An aggregator writes at least every two minutes. Three missed writes mean that it is down; clocks differ by seconds.
 */
export const SILENT_AFTER_MS = 6 * 60_000;

/** One core cluster, as far as the gate needs it. */
export interface GateCore {
  problem(nowMs: number): string | undefined;
  covering(namespace: string, labels: Readonly<Record<string, string>>): readonly PodProtector[];
}

export interface GateContext {
  readonly cell: string;
  readonly cores: readonly GateCore[];
  /** The pod's namespace asks for the gate, on behalf of every protector in the namespace that does not decline. */
  readonly isOptedIn: boolean;
  readonly ownNamespace: string;
  /** Wall clock. */
  readonly nowMs: number;
  readonly monotonicMs: number;
}

function stringsIn(value: unknown): Readonly<Record<string, string>> {
  return Object.fromEntries(
    Object.entries(Object(value)).filter((entry): entry is [string, string] => typeof entry[1] === "string"),
  );
}

/** True when the protector asks for the gate, and an aggregator of the cell opens it. */
function asksForGate({ metadata, status }: PodProtector, { cell, isOptedIn, nowMs }: GateContext): boolean {
  const wish = metadata.annotations?.[COUNTED_GATE];
  if (!(wish === "enabled" || (isOptedIn && wish !== "disabled"))) return false;
  const heartbeat = status?.cells.find(({ cellID }) => cellID === cell)?.aggregation?.heartbeatTime;
  return heartbeat !== undefined && nowMs - parseMs(heartbeat) < SILENT_AFTER_MS;
}

/**
 * The patch that adds the gate; undefined when the pod stays unchanged. Reads the raw pod, which has no UID yet and
 * perhaps no name; kube-apiserver rejects what is invalid in it.
 */
export function gatePod(request: AdmissionRequest, context: GateContext): readonly PatchOperation[] | undefined {
  if (request.operation !== "CREATE" || request.resource !== "pods" || request.subResource !== "") return undefined;
  const { object, namespace } = request;
  const labels = stringsIn(valueAt(object, "metadata", "labels"));
  const gates = valueAt(object, "spec", "readinessGates");
  const isOwn = namespace === context.ownNamespace && labels[PART_OF_LABEL] === PART_OF_PODSEIDON;
  const isMirror = valueAt(object, "metadata", "annotations", MIRROR_POD_ANNOTATION) !== undefined;
  const isGated = Array.isArray(gates) && gates.some((gate) => valueAt(gate, "conditionType") === COUNTED_CONDITION);
  if (isOwn || isMirror || isGated) return undefined;
  if (context.cores.some((core) => core.problem(context.monotonicMs) !== undefined)) return undefined;
  const protectors = context.cores.flatMap((core) => core.covering(namespace, labels));
  if (!protectors.some((protector) => asksForGate(protector, context))) return undefined;
  const gate = { conditionType: COUNTED_CONDITION };
  return Array.isArray(gates)
    ? [{ op: "add", path: "/spec/readinessGates/-", value: gate }]
    : [{ op: "add", path: "/spec/readinessGates", value: [gate] }];
}
