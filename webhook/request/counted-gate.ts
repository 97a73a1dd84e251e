/**
 * Which new pods get the counted readiness gate (design 10): those of a protector that asks for it, or whose namespace does, where an
 * aggregator counts. A pod without the gate is an ordinary pod; one with a gate that nobody opens is never Ready. So in any doubt
 * there is no gate: no protector, a cache that may be old, a cell that was never counted, or one whose aggregator is silent.
 */

import type { PatchOperation } from "../../shared/schema/admission.ts";
import {
  COUNTED_CONDITION,
  COUNTED_GATE,
  MIRROR_POD_ANNOTATION,
  PART_OF_LABEL,
  PART_OF_PODSEIDON,
} from "../../shared/schema/annotations.ts";
import type { PodProtector } from "../../shared/schema/podprotector.ts";
import { parseMs } from "../../shared/schema/time.ts";
import type { AdmissionRequest } from "./admission-request.ts";

/** An aggregator writes at least every two minutes; after three that were missed it counts as down. Wall clocks may differ by seconds. */
export const SILENT_AFTER_MS = 6 * 60_000;

/** One core cluster, as far as the gate needs it. */
export interface GatedCore {
  problem(nowMs: number): string | undefined;
  covering(namespace: string, labels: Readonly<Record<string, string>>): readonly PodProtector[];
}

export interface GateContext {
  readonly cell: string;
  readonly cores: readonly GatedCore[];
  /** The pod's namespace asks for the gate: every protector does that does not decline. */
  readonly isOptedIn: boolean;
  readonly ownNamespace: string;
  /** Wall clock. */
  readonly nowMs: number;
  readonly monotonicMs: number;
}

interface NewPod {
  readonly namespace: string;
  readonly labels: Readonly<Record<string, string>>;
  /** `spec.readinessGates[].conditionType`; undefined where the list is not there. */
  readonly gates: readonly unknown[] | undefined;
  readonly isMirror: boolean;
}

function get(value: unknown, ...path: readonly string[]): unknown {
  return path.reduce<unknown>((found, name) => Reflect.get(Object(found), name), value);
}

function textsOf(value: unknown): Readonly<Record<string, string>> {
  return Object.fromEntries(
    Object.entries(Object(value)).filter((entry): entry is [string, string] => typeof entry[1] === "string"),
  );
}

/** A pod at its creation has no UID and perhaps no name; what is odd in it is kube-apiserver's to refuse. */
function newPodOf({ object, namespace }: AdmissionRequest): NewPod {
  const gates = get(object, "spec", "readinessGates");
  return {
    namespace,
    labels: textsOf(get(object, "metadata", "labels")),
    gates: Array.isArray(gates) ? gates.map((gate) => get(gate, "conditionType")) : undefined,
    isMirror: get(object, "metadata", "annotations", MIRROR_POD_ANNOTATION) !== undefined,
  };
}

/** True when the protector asks for the gate, and somebody opens it. */
function asksForGate({ metadata, status }: PodProtector, { cell, isOptedIn, nowMs }: GateContext): boolean {
  const wish = metadata.annotations?.[COUNTED_GATE];
  if (!(wish === "enabled" || (isOptedIn && wish !== "disabled"))) return false;
  const heartbeat = status?.cells.find(({ cellID }) => cellID === cell)?.aggregation?.heartbeatTime;
  return heartbeat !== undefined && nowMs - parseMs(heartbeat) < SILENT_AFTER_MS;
}

/** The patch that adds the gate; undefined when the pod is left as it is. */
export function gatePod(request: AdmissionRequest, context: GateContext): readonly PatchOperation[] | undefined {
  if (request.operation !== "CREATE" || request.resource !== "pods" || request.subResource !== "") return undefined;
  const pod = newPodOf(request);
  const isOwn = pod.namespace === context.ownNamespace && pod.labels[PART_OF_LABEL] === PART_OF_PODSEIDON;
  if (isOwn || pod.isMirror || pod.gates?.includes(COUNTED_CONDITION) === true) return undefined;
  if (context.cores.some((core) => core.problem(context.monotonicMs) !== undefined)) return undefined;
  const protectors = context.cores.flatMap((core) => core.covering(pod.namespace, pod.labels));
  if (!protectors.some((protector) => asksForGate(protector, context))) return undefined;
  const gate = { conditionType: COUNTED_CONDITION };
  return pod.gates === undefined
    ? [{ op: "add", path: "/spec/readinessGates", value: [gate] }]
    : [{ op: "add", path: "/spec/readinessGates/-", value: gate }];
}
