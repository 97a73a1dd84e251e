/** Metrics and log lines of what keeps a cell's registration. */
import type { Log } from "../../../shared/observe/log.ts";
import type { Metrics } from "../../../shared/observe/metrics.ts";
import type { CaInjectorEvent } from "./ca-injector.ts";

const FAILURES = ["conflict", "gone", "rejected", "unavailable"] as const;

export function caInjectorObserver(metrics: Metrics, log: Log): (event: CaInjectorEvent) => void {
  const writes = metrics.counter({
    name: "registration_ca_writes_total",
    help: "Times that authorities were put into a webhook registration of the cell.",
  });
  const failures = metrics.counter({
    name: "registration_ca_failures_total",
    help: "Reads and writes about the authorities of the cell's registration that failed and are repeated, by why.",
    labels: { reason: FAILURES },
  });
  let said = "";
  return (event) => {
    switch (event.kind) {
      case "trusted":
        writes.inc({});
        said = "";
        log.info(
          { registration: event.registration, fingerprint: event.fingerprint },
          "The registration trusts what is published",
        );
        return;
      case "told":
        said = "";
        log.info({ fingerprint: event.fingerprint }, "The cell's trust was made known");
        return;
      case "failed":
        failures.inc({ reason: event.tag });
        // An outage is one line.
        if (said === `${event.what} ${event.tag}`) return;
        said = `${event.what} ${event.tag}`;
        log.warn(
          { object: event.what, tag: event.tag, error: event.message },
          "The authorities of the registration could not be kept; what is there stays",
        );
        return;
    }
  };
}

/** `isTrusting` is asked at each scrape: undefined where it is not known, as on a standby. */
export function caInjectorMetrics(metrics: Metrics, isTrusting: () => boolean | undefined): void {
  metrics.gaugeFrom(
    {
      name: "registration_ca_current",
      help: "1 when the cell's registration is there and trusts the published authorities, 0 when not; absent on a standby.",
    },
    (set) => {
      const trusting = isTrusting();
      if (trusting !== undefined) set({}, trusting ? 1 : 0);
    },
  );
}
