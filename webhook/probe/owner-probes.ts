/** The owners of workloads, asked from this process: loads what asks them when it is first needed, and counts. */
import { readFileSync } from "node:fs";
import type { Log } from "../../shared/observe/log.ts";
import type { Counter, Histogram, Metrics } from "../../shared/observe/metrics.ts";
import type { Ports } from "../../shared/runtime/clock.ts";
import { type AskOwner, PROBE_RESULTS } from "./owner.ts";
import type { ProbeEvent, Probes } from "./probes.ts";

const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

export interface OwnerDeskOptions {
  readonly metrics: Metrics;
  readonly log: Log;
  readonly ports: Ports;
  /** PEM certificates for probes whose protector names none; empty is the system's. */
  readonly caFile: string;
}

export class OwnerProbes {
  readonly #calls: Counter<{ result: typeof PROBE_RESULTS }>;
  readonly #seconds: Histogram<Record<never, never>>;
  readonly #log: Log;
  readonly #ports: Ports;
  readonly #caFile: string;
  #probes: Promise<Probes> | undefined;
  #loaded: Probes | undefined;

  readonly ask: AskOwner = async (question) => {
    this.#probes ??= this.#load();
    return (await this.#probes).ask(question);
  };

  constructor({ metrics, log, ports, caFile }: OwnerDeskOptions) {
    this.#log = log;
    this.#ports = ports;
    this.#caFile = caFile;
    this.#calls = metrics.counter({
      name: "webhook_probe_questions_total",
      help: "Questions to owners of workloads (spec.probe), by how they ended; all but the first two are no answer, which refuses.",
      labels: { result: PROBE_RESULTS },
    });
    this.#seconds = metrics.histogram({
      name: "webhook_probe_seconds",
      help: "Time until an owner's answer was there, or was given up.",
      labels: {},
      buckets: SECONDS,
    });
    metrics.gaugeFrom(
      {
        name: "webhook_probe_circuits_open",
        help: "Probe endpoints that are not asked at the moment because they did not answer; disruptions are refused meanwhile.",
        labels: {},
      },
      (set) => set({}, this.#loaded?.openCircuits ?? 0),
    );
  }

  close(): void {
    this.#loaded?.close();
  }

  async #load(): Promise<Probes> {
    const { Probes } = await import("./probes.ts");
    const caFile = this.#caFile;
    this.#loaded = new Probes({
      ports: this.#ports,
      onAsked: (event) => this.#asked(event),
      // Read for each endpoint that is met or does not answer, so that a certificate authority that was replaced is followed.
      defaultCa: () => (caFile === "" ? undefined : readFileSync(caFile, "utf8")),
    });
    return this.#loaded;
  }

  #asked({ result, endpoint, tookMs }: ProbeEvent): void {
    this.#calls.inc({ result });
    this.#seconds.observe({}, tookMs / 1000);
    if (result !== "allowed" && result !== "refused") {
      this.#log.debug({ endpoint, result, tookMs }, "A probe did not answer");
    }
  }
}
