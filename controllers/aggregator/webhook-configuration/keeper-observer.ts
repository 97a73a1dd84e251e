/** Metrics, log lines and Events of what keeps a cell's registration. */
import type { EventRecorder } from "../../../shared/observe/event-recorder.ts";
import type { Log } from "../../../shared/observe/log.ts";
import type { Metrics } from "../../../shared/observe/metrics.ts";
import { type ConfigurationEvent, KINDS, RESOURCES } from "./configuration-keeper.ts";

const WHY = ["missing", "altered"] as const;

export interface KeeperObserved {
  readonly metrics: Metrics;
  readonly log: Log;
  readonly events: Pick<EventRecorder, "record">;
  /** `metadata.name` of both registrations. */
  readonly name: string;
}

export function keeperObserver({ metrics, log, events, name }: KeeperObserved): (event: ConfigurationEvent) => void {
  const restores = metrics.counter({
    name: "registration_restores_total",
    help: "Times that a webhook registration of the cell was missing or altered and was put back.",
    labels: { resource: RESOURCES, why: WHY },
  });
  const failures = metrics.counter({
    name: "registration_failures_total",
    help: "Calls that keep the registrations of the cell and failed; they are repeated.",
    labels: { resource: RESOURCES },
  });
  return (event) => {
    const { kind, ...fields } = event;
    switch (kind) {
      case "restored": {
        const { resource, why, uid } = event;
        restores.inc({ resource, why });
        log.error(fields, "A webhook registration was missing or altered and was put back");
        events.record({
          regarding: { apiVersion: "admissionregistration.k8s.io/v1", kind: KINDS[resource], name, uid },
          type: "Warning",
          reason: why === "missing" ? "RegistrationMissing" : "RegistrationAltered",
          message: `the ${KINDS[resource]} ${name} was ${why} and was put back: without it pods are deleted without being asked for`,
        });
        return;
      }
      case "adopted":
        log.info(fields, "The declared form of a webhook registration is on record");
        return;
      case "unknown":
        log.error(
          fields,
          "There is no webhook registration, and it is not known what it should be: apply the manifests",
        );
        return;
      case "failed":
        failures.inc({ resource: event.resource });
        log.warn(fields, "A webhook registration could not be looked after; this is tried again");
    }
  };
}

/** `isKept` is asked at each scrape: undefined where it is not known, as on a standby. */
export function keeperMetrics(metrics: Metrics, isKept: () => boolean | undefined): void {
  metrics.gaugeFrom(
    {
      name: "registration_kept",
      help: "1 when the registrations of the cell are as they should be, 0 when not; absent on a standby.",
    },
    (set) => {
      const kept = isKept();
      if (kept !== undefined) set({}, kept ? 1 : 0);
    },
  );
}
