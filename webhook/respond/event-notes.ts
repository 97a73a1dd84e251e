/** Kubernetes Events about denied and forced disruptions, for `kubectl describe` and `kubectl get events`. */
import type { Transport } from "../../shared/kube/client/transport.ts";
import {
  type EventNote,
  type EventOutcome,
  EventRecorder,
  type ObjectReference,
} from "../../shared/observe/event-recorder.ts";
import type { Ports } from "../../shared/runtime/clock.ts";
import { GROUP, VERSION } from "../../shared/schema/annotations.ts";
import type { AdmissionOutcome, AdmissionRecord } from "./admission-response.ts";
import { backoffNote, controlledWorkload } from "./workload-controller.ts";

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
]);

function messageOf({ outcome, cell, username, kind, pod, message }: AdmissionRecord): string {
  // The webhook can't tell who sent the request: the name is what the request says.
  const asked = `asked by ${username} in cell ${cell}, as the request says`;
  if (outcome !== "forced") return `${message ?? `${kind} refused`} (${asked})`;
  const done = kind === "evict" ? "evicted" : kind === "change" ? "changed" : "deleted";
  return (
    `pod ${pod?.namespace}/${pod?.name} is ${done} whatever its ` +
    `protectors need, by its force-delete annotation (${asked})`
  );
}

/** The deletion of a node may be denied by as many protectors as pods are on it. */
const MAX_PROTECTORS = 20;

/**
 * Reports at the pod and its workload, in their cell, and at the protectors that decided, in their cores. Never waits
 * or throws.
 */
export class EventNotes {
  readonly #options: EventNotesOptions;
  readonly #recorders = new Map<string, EventRecorder>();

  constructor(options: EventNotesOptions) {
    this.#options = options;
  }

  record(record: AdmissionRecord): void {
    const { outcome, pod, decisions = [], cell, kind, username, oldObject } = record;
    const reason = REASONS.get(outcome);
    if (reason === undefined) return;
    const { cores, cells } = this.#options;
    const message = messageOf(record);
    const note = (regarding: ObjectReference): EventNote => ({ regarding, type: "Warning", reason, message });
    const { transport } = cells.find(({ name }) => name === cell) ?? {};
    if (pod !== undefined) this.#send(`cell ${cell}`, transport, note({ apiVersion: "v1", kind: "Pod", ...pod }));
    const isDenied = outcome === "denied" && kind === "delete";
    const workload = isDenied ? controlledWorkload(username, oldObject) : undefined;
    if (workload !== undefined)
      this.#send(`cell ${cell}`, transport, { ...note(workload), message: message + backoffNote(workload) });
    for (const { protector } of decisions.slice(0, MAX_PROTECTORS)) {
      const { core, namespace, name } = protector;
      const known = cores.find((one) => one.name === core);
      const uid = known?.uidOf(`${namespace}/${name}`);
      const regarding = { apiVersion: `${GROUP}/${VERSION}`, kind: "PodProtector", namespace, name };
      this.#send(`core ${core}`, known?.transport, note(uid === undefined ? regarding : { ...regarding, uid }));
    }
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
