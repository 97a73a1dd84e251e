/** Kubernetes Events about denied disruptions, bypassed ones and, if configured, admitted ones. */
import type { Transport } from "../../shared/kube/client/transport.ts";
import {
  type EventNote,
  type EventOutcome,
  EventRecorder,
  type ObjectReference,
} from "../../shared/observe/event-recorder.ts";
import type { Ports } from "../../shared/runtime/clock.ts";
import { GROUP, VERSION } from "../../shared/schema/annotations.ts";
import type { ProtectorId } from "../../shared/schema/podprotector.ts";
import type { DecisionOf } from "../reserve/verdict.ts";
import type { AdmissionOutcome, AdmissionRecord } from "./admission-response.ts";
import { MAX_LISTED } from "./deny-status.ts";
import { backoffNote, controllingOwner, isWorkloadController } from "./workload-controller.ts";

/** A cluster in which Events are written. */
interface EventCluster {
  readonly name: string;
  readonly transport: Transport | undefined;
}

interface EventCore extends EventCluster {
  /** UID of a protector by `namespace/name`, if known: `kubectl describe` finds Events by it. */
  readonly uidOf: (key: string) => string | undefined;
}

export interface EventNotesOptions {
  readonly cores: readonly EventCore[];
  readonly cells: readonly EventCluster[];
  readonly ports: Ports;
  readonly onOutcome: (outcome: EventOutcome) => void;
}

/** The `reason` of the Events by outcome. A busy denial passes by itself, without an Event. */
const REASONS: ReadonlyMap<AdmissionOutcome, string> = new Map([
  ["denied", "DisruptionRefused"],
  ["dryRunDenied", "DisruptionWouldBeRefused"],
  ["forced", "ProtectionBypassed"],
  ["lowered", "ProtectionLowered"],
  ["suspended", "ProtectionSuspended"],
]);

/** x-pdb's word for an admitted disruption, and its sentence. */
const ACCEPTED = "Accepted";
const acceptedText = (name: string): string => `attempted eviction of ${name}`;

function messageOf({ outcome, cell, username, kind, pod, message }: AdmissionRecord): string {
  // The webhook can't tell who sent the request: the name is what the request says.
  const asked = `asked by ${username} in cell ${cell}, as the request says`;
  if (outcome !== "forced" && outcome !== "suspended") return `${message ?? `${kind} refused`} (${asked})`;
  const done = kind === "evict" ? "evicted" : kind === "change" ? "changed" : "deleted";
  const why =
    outcome === "forced"
      ? "whatever its protectors need, by its force-delete annotation"
      : "while its protector is suspended";
  return `pod ${pod?.namespace}/${pod?.name} is ${done} ${why} (${asked})`;
}

/** One Event counts all disruptions with the same cause, whatever the pod and the user are. */
function causeOf({ decision }: DecisionOf): string {
  if (decision.kind !== "allowed" && decision.kind !== "denied") return decision.kind;
  return decision.decision.allowed ? decision.decision.reason : decision.decision.cause;
}

/**
 * Writes Events at the protectors that decided, in their cores, and in the cell at the pod's workload, or at the pod if
 * it has no workload. An Event counts all pods and users of its object and cause. Never waits or throws.
 */
export class EventNotes {
  readonly #options: EventNotesOptions;
  readonly #recorders = new Map<string, EventRecorder>();

  constructor(options: EventNotesOptions) {
    this.#options = options;
  }

  record(record: AdmissionRecord): void {
    const { outcome, decisions = [], cell } = record;
    if (outcome === "allowed") {
      this.#accepted(record);
      return;
    }
    const reason = REASONS.get(outcome);
    if (reason === undefined) return;
    const { cores, cells } = this.#options;
    const message = messageOf(record);
    const telling = outcome === "suspended" ? decisions.filter((one) => causeOf(one) === "Suspended") : decisions;
    const note = (regarding: ObjectReference, series: string): EventNote => {
      return { regarding, type: "Warning", reason, message, series };
    };
    const about = workloadOrPod(record);
    const { transport } = cells.find(({ name }) => name === cell) ?? {};
    if (about !== undefined) {
      const [first] = telling;
      const inCell = note(about.regarding, first === undefined ? "" : causeOf(first));
      this.#send(`cell ${cell}`, transport, { ...inCell, message: message + about.hint });
    }
    for (const decision of telling.slice(0, MAX_LISTED)) {
      const { core } = decision.protector;
      const known = cores.find((one) => one.name === core);
      const inCore = note(this.#protector(decision.protector), causeOf(decision));
      this.#send(`core ${core}`, known?.transport, inCore);
    }
  }

  /**
   * Writes at each protector that has recorded the disruption, or at the XPodDisruptionBudget that the protector was
   * made from, where x-pdb's users look. An Event counts all pods.
   */
  #accepted({ pod, node, decisions = [], cell, username }: AdmissionRecord): void {
    const name = pod?.name ?? `the pods of node ${node}`;
    const message = `${acceptedText(name)} (asked by ${username} in cell ${cell}, as the request says)`;
    for (const { protector, decision } of decisions.filter(isRecorded).slice(0, MAX_LISTED)) {
      const { core, namespace } = protector;
      const budget = budgetOf(decision);
      const regarding = budget === undefined ? this.#protector(protector) : { ...budget, namespace };
      const { transport } = this.#options.cores.find((one) => one.name === core) ?? {};
      const note = { regarding, type: "Normal", reason: ACCEPTED, message, series: ACCEPTED } as const;
      this.#send(`core ${core}`, transport, note);
    }
  }

  #protector({ core, namespace, name }: ProtectorId): ObjectReference {
    const uid = this.#options.cores.find((one) => one.name === core)?.uidOf(`${namespace}/${name}`);
    const regarding = { apiVersion: `${GROUP}/${VERSION}`, kind: "PodProtector", namespace, name };
    return uid === undefined ? regarding : { ...regarding, uid };
  }

  /** Sends what is queued, for at most `limitMs`. */
  async stop(limitMs: number): Promise<void> {
    await Promise.all([...this.#recorders.values()].map((recorder) => recorder.stop(limitMs)));
  }

  #send(cluster: string, transport: Transport | undefined, note: EventNote): void {
    if (transport === undefined) return;
    const { ports, onOutcome } = this.#options;
    const known = this.#recorders.get(cluster);
    const recorder = known ?? new EventRecorder({ transport, ports, component: "podseidon-webhook", onOutcome });
    this.#recorders.set(cluster, recorder);
    recorder.record(note);
  }
}

/** An Eviction does not name the pod's owner, and Events at each pod of a drained node would hide all others. */
function workloadOrPod({ outcome, kind, username, pod, oldObject }: AdmissionRecord) {
  if (pod === undefined || kind === "evict") return undefined;
  const owner = controllingOwner(oldObject);
  if (owner === undefined) return { regarding: { apiVersion: "v1", kind: "Pod", ...pod }, hint: "" };
  const isRepeated = outcome === "denied" && kind === "delete" && isWorkloadController(username);
  return { regarding: owner, hint: isRepeated ? backoffNote(owner) : "" };
}

/** True for a reservation or a pin, false for a disruption that is always free, such as that of a finished pod. */
function isRecorded({ decision }: DecisionOf): boolean {
  return decision.kind === "allowed" && decision.written;
}

function budgetOf(decision: DecisionOf["decision"]): ObjectReference | undefined {
  if (decision.kind !== "allowed") return undefined;
  const { ownerReferences = [] } = decision.version.object.metadata;
  const owner = ownerReferences.find(({ controller, kind }) => controller === true && kind === "XPodDisruptionBudget");
  return owner && { apiVersion: owner.apiVersion, kind: owner.kind, name: owner.name, uid: owner.uid };
}
