/** What people find with `kubectl describe`, and `kubectl get events`: Kubernetes Events about refused and forced disruptions. */
import type { Transport } from "../../shared/kube/client/transport.ts";
import type { EventOutcome } from "../../shared/observe/event-outcomes.ts";
import { type EventNote, EventRecorder, type ObjectReference } from "../../shared/observe/event-recorder.ts";
import type { Ports } from "../../shared/runtime/clock.ts";
import { GROUP, VERSION } from "../../shared/schema/annotations.ts";
import type { AdmissionRecord } from "../handler.ts";

/** A cluster in which Events can be made. */
export interface NoticedCluster {
  readonly name: string;
  readonly transport: Transport | undefined;
}

export interface NoticedCore extends NoticedCluster {
  /** UID of a protector, by `namespace/name`; undefined when it is not known. `kubectl describe` finds Events by it. */
  readonly uidOf: (key: string) => string | undefined;
}

export interface NoticesOptions {
  readonly cores: readonly NoticedCore[];
  readonly cells: readonly NoticedCluster[];
  readonly ports: Ports;
  readonly onOutcome: (outcome: EventOutcome) => void;
}

/** Outcomes that people are told of, and the reason that their Events carry. Busy answers pass by themselves: nobody is. */
const REASONS: ReadonlyMap<AdmissionRecord["outcome"], string> = new Map([
  ["denied", "DisruptionRefused"],
  ["dryRunDenied", "DisruptionWouldBeRefused"],
  ["forced", "ProtectionBypassed"],
]);

function sentence({ outcome, cell, username, kind, pod, message }: AdmissionRecord): string {
  const asked = `asked by ${username} in cell ${cell}`;
  if (outcome !== "forced") return `${message ?? `${kind} refused`} (${asked})`;
  const done = kind === "evict" ? "evicted" : kind === "change" ? "changed" : "deleted";
  return `pod ${pod?.namespace}/${pod?.name} is ${done} whatever its protectors need, by its force-delete annotation (${asked})`;
}

/** Tells of one review at its pod, in the cell, and at the protectors that decided, in their cores. Never waits, never throws. */
export class Notices {
  readonly #options: NoticesOptions;
  readonly #recorders = new Map<string, EventRecorder>();

  constructor(options: NoticesOptions) {
    this.#options = options;
  }

  tell(record: AdmissionRecord): void {
    const { outcome, pod, judgements, blockers, cell } = record;
    const reason = REASONS.get(outcome);
    if (reason === undefined || pod === undefined) return;
    const { cores, cells } = this.#options;
    const message = sentence(record);
    const note = (regarding: ObjectReference): EventNote => ({ regarding, type: "Warning", reason, message });
    this.#record(
      `cell ${cell}`,
      cells.find(({ name }) => name === cell)?.transport,
      note({ apiVersion: "v1", kind: "Pod", ...pod }),
    );
    for (const { core, namespace, name } of blockers ?? judgements?.map(({ match }) => match) ?? []) {
      const known = cores.find((one) => one.name === core);
      const uid = known?.uidOf(`${namespace}/${name}`);
      const protector = { apiVersion: `${GROUP}/${VERSION}`, kind: "PodProtector", namespace, name };
      this.#record(`core ${core}`, known?.transport, note(uid === undefined ? protector : { ...protector, uid }));
    }
  }

  /** Sends what waits, for at most `limitMs`, and ends. */
  async stop(limitMs: number): Promise<void> {
    await Promise.all([...this.#recorders.values()].map((recorder) => recorder.stop(limitMs)));
  }

  #record(cluster: string, transport: Transport | undefined, note: EventNote): void {
    if (transport === undefined) return;
    const recorder = this.#recorders.get(cluster) ?? this.#recorder(transport);
    this.#recorders.set(cluster, recorder);
    recorder.record(note);
  }

  #recorder(transport: Transport): EventRecorder {
    const { ports, onOutcome } = this.#options;
    return new EventRecorder({ transport, ports, component: "podseidon-webhook", onOutcome });
  }
}
