/** Loads the probes' machinery with the first protector that has a probe, and counts what becomes of each request. */
import { readFileSync } from "node:fs";
import type { Log } from "../../shared/observe/log.ts";
import type { Counter, Histogram, Metrics } from "../../shared/observe/metrics.ts";
import type { Ports } from "../../shared/runtime/clock.ts";
import type { ProbeEndpoints, ProbeEvent } from "./probe-endpoints.ts";
import { type AskOwner, PROBE_RESULTS } from "./probe-request.ts";

const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

interface OwnerProbesOptions {
  readonly metrics: Metrics;
  readonly log: Log;
  readonly ports: Ports;
  /** PEM certificates for probes whose protector names none; empty is the system's. */
  readonly caFile: string;
  /** Hosts that may be asked. */
  readonly allowed: readonly string[];
  /** PEM certificate and key that the webhook shows; empty shows none. */
  readonly clientCertFile: string;
  readonly clientKeyFile: string;
}

export class OwnerProbes {
  readonly #options: OwnerProbesOptions;
  readonly #asked: Counter<{ result: typeof PROBE_RESULTS }>;
  readonly #seconds: Histogram<Record<never, never>>;
  #endpoints: Promise<ProbeEndpoints> | undefined;
  #loaded: ProbeEndpoints | undefined;

  readonly ask: AskOwner = async (request) => {
    this.#endpoints ??= this.#load();
    return (await this.#endpoints).ask(request);
  };

  constructor(options: OwnerProbesOptions) {
    this.#options = options;
    const { metrics } = options;
    this.#asked = metrics.counter({
      name: "webhook_probe_questions_total",
      help:
        "Requests to owners of workloads (spec.probe), by result; every " +
        "result but allowed and refused is no answer, which denies.",
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
        help:
          "Probe endpoints that are not asked at the moment because they " +
          "did not answer; disruptions are denied meanwhile.",
        labels: {},
      },
      (set) => set({}, this.#loaded?.openCircuits ?? 0),
    );
  }

  close(): void {
    this.#loaded?.close();
  }

  async #load(): Promise<ProbeEndpoints> {
    const { ProbeEndpoints } = await import("./probe-endpoints.ts");
    const { ports, caFile, allowed, clientCertFile, clientKeyFile } = this.#options;
    this.#loaded = new ProbeEndpoints({
      ports,
      allowed,
      onAsked: (event) => this.#count(event),
      // Read for each new or failing endpoint, so that a replaced certificate authority is followed.
      defaultCa: () => (caFile === "" ? undefined : readFileSync(caFile, "utf8")),
      clientCertificate: () =>
        clientCertFile === ""
          ? undefined
          : { cert: readFileSync(clientCertFile, "utf8"), key: readFileSync(clientKeyFile, "utf8") },
    });
    return this.#loaded;
  }

  #count({ result, endpoint, tookMs }: ProbeEvent): void {
    this.#asked.inc({ result });
    this.#seconds.observe({}, tookMs / 1000);
    if (result === "allowed" || result === "refused") return;
    this.#options.log.debug({ endpoint, result, tookMs }, "A probe did not answer");
  }
}
