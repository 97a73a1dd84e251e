/** One webhook replica: the shipping code on simulated links. It dies, and its successor starts without its memory. */
import type { Transport } from "../../../shared/kube/client/transport.ts";
import { assembleWebhook, type Webhook, type WebhookParts } from "../../../webhook/assemble.ts";
import type { AdmissionCall, HttpResponse } from "../../../webhook/http/call.ts";
import type { AskOwner } from "../../../webhook/probe/probe-request.ts";
import type { ProcessPorts } from "../../support/runtime/virtual-ports.ts";
import "../world/preload.ts";

interface ReplicaOptions {
  readonly ports: ProcessPorts;
  readonly cores: readonly { readonly name: string; readonly transport: Transport }[];
  readonly cells: readonly { readonly name: string; readonly transport: Transport }[];
  readonly settleMs: number;
  readonly observer: Pick<WebhookParts, "onEvent" | "onFinished">;
  readonly dryRunMode: boolean;
  /** The replica reads backups and enforces lost protectors (docs/design.md#lost-protectors). */
  readonly enforcesLost: boolean;
  readonly askOwner: AskOwner | undefined;
}

export class Replica {
  readonly ports: ProcessPorts;
  readonly #webhook: Webhook;
  readonly #options: ReplicaOptions;
  readonly #died = Promise.withResolvers<void>();
  #alive = true;

  constructor(options: ReplicaOptions) {
    this.#options = options;
    this.ports = options.ports;
    this.#webhook = assembleWebhook({
      cores: options.cores,
      cells: options.cells,
      ports: options.ports,
      settleMs: options.settleMs,
      ownNamespace: "podseidon-system",
      dryRunMode: options.dryRunMode,
      outlive: options.enforcesLost,
      ...(options.askOwner === undefined ? {} : { askOwner: options.askOwner }),
      requireBoundEvictions: true,
      ...options.observer,
    });
    this.#webhook.start();
  }

  /** Alive and ready: the Service sends admission requests to this replica. */
  get serving(): boolean {
    return this.#alive && this.#webhook.problems().length === 0;
  }

  get alive(): boolean {
    return this.#alive;
  }

  get died(): Promise<void> {
    return this.#died.promise;
  }

  async handle(call: AdmissionCall): Promise<HttpResponse> {
    return await this.#webhook.handle(call);
  }

  /** As `kill -9`: none of its code runs again. Requests that it has sent may still arrive. */
  kill(): void {
    this.#alive = false;
    this.ports.kill();
    for (const { transport } of [...this.#options.cores, ...this.#options.cells]) transport.close();
    this.#died.resolve();
  }
}
