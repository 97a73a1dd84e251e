/** Kubernetes Events at protectors whose pods have vanished (docs/design.md#vanished-pods), in their cores. */
import type { EventOutcome } from "../../../shared/observe/event-outcome.ts";
import { EventRecorder } from "../../../shared/observe/event-recorder.ts";
import type { Ports } from "../../../shared/runtime/clock.ts";
import { GROUP, KIND, VERSION } from "../../../shared/schema/annotations.ts";
import type { Core } from "../informers.ts";
import type { AggregatorEvent } from "./events.ts";

interface VanishedEventsOptions {
  readonly cellID: string;
  readonly cores: readonly Pick<Core, "name" | "transport" | "protectors">[];
  readonly ports: Ports;
  readonly component: string;
  readonly onOutcome: (outcome: EventOutcome) => void;
}

export class VanishedEvents {
  readonly #options: VanishedEventsOptions;
  /** By core. */
  readonly #recorders: ReadonlyMap<string, EventRecorder>;

  constructor(options: VanishedEventsOptions) {
    this.#options = options;
    this.#recorders = new Map(
      options.cores.map(({ name, transport }) => [name, new EventRecorder({ transport, ...options })]),
    );
  }

  /** Never waits or throws. */
  record({ id, pods, names }: Extract<AggregatorEvent, { readonly kind: "vanished" }>): void {
    const { core: coreName, namespace, name } = id;
    const core = this.#options.cores.find((one) => one.name === coreName);
    if (core === undefined) return;
    const uid = core.protectors.get(`${namespace}/${name}`)?.metadata.uid;
    const regarding = { apiVersion: `${GROUP}/${VERSION}`, kind: KIND, namespace, name };
    const more = pods > names.length ? ` and ${pods - names.length} more` : "";
    const message =
      `${pods} available pod${pods === 1 ? "" : "s"} of cell ${this.#options.cellID} disappeared without a deletion ` +
      `request: ${names.join(", ")}${more}. The etcd of the cell may have lost them.`;
    this.#recorders.get(coreName)?.record({
      ...{ type: "Warning", reason: "PodsVanished", message, series: this.#options.cellID },
      regarding: uid === undefined ? regarding : { ...regarding, uid },
    });
  }

  async stop(limitMs: number): Promise<void> {
    await Promise.all([...this.#recorders.values()].map((recorder) => recorder.stop(limitMs)));
  }
}
