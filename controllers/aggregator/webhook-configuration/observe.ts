/** Metrics, log lines and Kubernetes Events of the CA injector and of the webhook configuration keeper. */
import { API_FAILURES } from "../../../shared/kube/client/api-result.ts";
import type { EventRecorder } from "../../../shared/observe/event-recorder.ts";
import { counted, observeEvents, unlessRepeated } from "../../../shared/observe/event-table.ts";
import { gaugeOf } from "../../../shared/observe/gauge.ts";
import type { Log } from "../../../shared/observe/log.ts";
import type { Metrics } from "../../../shared/observe/metrics.ts";
import type { CaInjector, CaInjectorEvent } from "./ca-injector.ts";
import type { ConfigurationEvent, ConfigurationKeeper } from "./configuration-keeper.ts";
import { KINDS, RESOURCES } from "./desired-configuration.ts";

/** Declares the gauge of a CA injector. */
export function injectorMetrics(metrics: Metrics, injector: Pick<CaInjector, "isTrusting">): void {
  gaugeOf(
    metrics,
    "registration_ca_current",
    "1 when the cell's registration is there and trusts the published authorities, 0 when not; absent on a standby.",
    () => injector.isTrusting,
  );
}

export function observeCaInjector(metrics: Metrics, log: Log): (event: CaInjectorEvent) => void {
  const writes = metrics.counter({
    name: "registration_ca_writes_total",
    help: "Times that authorities were put into a webhook registration of the cell.",
  });
  // An outage is one line.
  const unlessSaid = unlessRepeated();
  return observeEvents<CaInjectorEvent>(
    { log },
    {
      injected: {
        level: "info",
        message: "The registration trusts what is published",
        fields: ({ resource, fingerprint }) => ({ registration: resource, fingerprint }),
        count() {
          writes.inc({});
          unlessSaid("", {});
        },
      },
      acknowledged: { level: "info", message: "The cell's trust was made known", count: () => void unlessSaid("", {}) },
      failed: {
        level: "warn",
        message: "The authorities of the registration could not be kept; what is there stays",
        fields: ({ what, tag, message }) => unlessSaid(`${what} ${tag}`, { object: what, tag, error: message }),
        count: counted(metrics, {
          name: "registration_ca_failures_total",
          help:
            "Reads and writes about the authorities of the cell's registration " +
            "that failed and are repeated, by why.",
          labels: { reason: API_FAILURES },
          of: ({ tag }) => ({ reason: tag }),
        }),
      },
    },
  );
}

/** Declares the gauge of a webhook configuration keeper. */
export function keeperMetrics(metrics: Metrics, keeper: Pick<ConfigurationKeeper, "isKept">): void {
  gaugeOf(
    metrics,
    "registration_kept",
    "1 when the registrations of the cell are as they should be, 0 when not; absent on a standby.",
    () => keeper.isKept,
  );
}

export interface KeeperSinks {
  readonly metrics: Metrics;
  readonly log: Log;
  readonly events: Pick<EventRecorder, "record">;
  /** `metadata.name` of both webhook configurations. */
  readonly name: string;
}

export function observeKeeper({ metrics, log, events, name }: KeeperSinks): (event: ConfigurationEvent) => void {
  return observeEvents<ConfigurationEvent>(
    { log, events },
    {
      restored: {
        level: "error",
        message: "A webhook registration was missing or altered and was put back",
        count: counted(metrics, {
          name: "registration_restores_total",
          help: "Times that a webhook registration of the cell was missing or altered and was put back.",
          labels: { resource: RESOURCES, why: ["missing", "altered"] },
          of: ({ resource, why }) => ({ resource, why }),
        }),
        note: ({ resource, why, uid }) => ({
          regarding: { apiVersion: "admissionregistration.k8s.io/v1", kind: KINDS[resource], name, uid },
          type: "Warning",
          reason: why === "missing" ? "RegistrationMissing" : "RegistrationAltered",
          message:
            `the ${KINDS[resource]} ${name} was ${why} and was put back: ` +
            "without it pods are deleted without being asked for",
        }),
      },
      adopted: { level: "info", message: "The declared form of a webhook registration is on record" },
      unknown: {
        level: "error",
        message: "There is no webhook registration, and it is not known what it should be: apply the manifests",
      },
      failed: {
        level: "warn",
        message: "A webhook registration could not be looked after; this is tried again",
        count: counted(metrics, {
          name: "registration_failures_total",
          help: "Calls that keep the registrations of the cell and failed; they are repeated.",
          labels: { resource: RESOURCES },
          of: ({ resource }) => ({ resource }),
        }),
      },
    },
  );
}
