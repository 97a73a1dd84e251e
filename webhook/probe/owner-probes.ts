/** Loads the modules for probes with the first protector that has a probe, and counts the result of each request. */
import type { Log } from "../../shared/observe/log.ts";
import type { Counter, Histogram, Metrics } from "../../shared/observe/metrics.ts";
import type { Ports } from "../../shared/runtime/clock.ts";
import { loadOnce } from "../../shared/runtime/load-once.ts";
import type { ProbeCertificateFiles, ProbeEndpoints, ProbeEvent } from "./probe-endpoints.ts";
import { type AskOwner, PROBE_RESULTS } from "./probe-request.ts";

const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

interface OwnerProbesOptions extends ProbeCertificateFiles {
  readonly metrics: Metrics;
  readonly log: Log;
  readonly ports: Ports;
  /** Hosts that may be asked. */
  readonly allowed: readonly string[];
}

export class OwnerProbes {
  readonly #options: OwnerProbesOptions;
  readonly #asked: Counter<{ result: typeof PROBE_RESULTS }>;
  readonly #seconds: Histogram<Record<never, never>>;
  readonly #endpoints = loadOnce(() => this.#load());
  #loaded: ProbeEndpoints | undefined;

  readonly ask: AskOwner = async (request) => {
    return (await this.#endpoints()).ask(request);
  };

  constructor(options: OwnerProbesOptions) {
    this.#options = options;
    const { metrics } = options;
    this.#asked = metrics.counter({
      name: "webhook_probe_questions_total",
      help: "Requests to owners of workloads (spec.probe), by result; all but allowed deny.",
      labels: { result: PROBE_RESULTS },
    });
    this.#seconds = metrics.histogram({
      name: "webhook_probe_seconds",
      help: "Time until an owner's answer, or until the request was given up.",
      labels: {},
      buckets: SECONDS,
    });
    metrics.gaugeFrom(
      {
        name: "webhook_probe_circuits_open",
        help: "Probe endpoints that did not answer and are not asked for a while: disruptions are denied.",
        labels: {},
      },
      (set) => set({}, this.#loaded?.openCircuits ?? 0),
    );
  }

  close(): void {
    this.#loaded?.close();
  }

  async #load(): Promise<ProbeEndpoints> {
    const { ProbeEndpoints, certificatesOf } = await import("./probe-endpoints.ts");
    const certificates = certificatesOf(this.#options, this.#options.log);
    this.#loaded = new ProbeEndpoints({ ...this.#options, ...certificates, onAsked: (event) => this.#count(event) });
    return this.#loaded;
  }

  #count({ result, endpoint, tookMs }: ProbeEvent): void {
    this.#asked.inc({ result });
    this.#seconds.observe({}, tookMs / 1000);
    if (result === "allowed" || result === "refused") return;
    this.#options.log.debug({ endpoint, result, tookMs }, "A probe did not answer");
  }
}
