/** One webhook replica: the shipping code on simulated links. It dies, and its successor starts without its memory. */
import type { Transport } from "../../../shared/kube/client/transport.ts";
import { type Log, silentLog } from "../../../shared/observe/log.ts";
import { assembleWebhook, type Webhook } from "../../../webhook/assemble.ts";
import type { AdmissionCall, HttpResponse } from "../../../webhook/http/call.ts";
import type { AskOwner } from "../../../webhook/probe/probe-request.ts";
import type { ProcessPorts } from "../../support/runtime/virtual-ports.ts";
import "../world/preload.ts";
import type { ReplicaMetrics } from "./replica-metrics.ts";

interface ReplicaOptions {
  readonly ports: ProcessPorts;
  readonly cores: readonly { readonly name: string; readonly transport: Transport }[];
  readonly cells: readonly { readonly name: string; readonly transport: Transport }[];
  readonly settleMs: number;
  readonly metrics: ReplicaMetrics;
  readonly dryRunMode: boolean;
  /** The replica reads backups and enforces lost protectors (docs/design.md#lost-protectors). */
  readonly enforcesLost: boolean;
  readonly askOwner: AskOwner | undefined;
  /** Called with each error that the replica logs as a defect. */
  readonly onDefect: (message: string) => void;
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
      log: defectLog(options.onDefect),
      metrics: options.metrics,
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

/** Errors in the log that are no defect of the replica. */
const NEWS = ["A protector vanished", "The copies of protectors in a cell cannot be read"];

function defectLog(onDefect: (message: string) => void): Log {
  const log: Log = {
    ...silentLog,
    error: ({ error }, message) => {
      if (NEWS.some((news) => message.startsWith(news))) return;
      onDefect(`${message}: ${error instanceof Error ? error.stack : String(error)}`);
    },
    child: () => log,
  };
  return log;
}
