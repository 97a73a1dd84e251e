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
    "1 when the cell's webhook configuration exists and trusts the published CAs, else 0; absent on a standby.",
    () => injector.isTrusting,
  );
}

export function observeCaInjector(metrics: Metrics, log: Log): (event: CaInjectorEvent) => void {
  const writes = metrics.counter({
    name: "registration_ca_writes_total",
    help: "Writes of caBundle to a webhook configuration of the cell.",
  });
  // An outage writes one line.
  const unlessSaid = unlessRepeated();
  return observeEvents<CaInjectorEvent>(
    { log },
    {
      injected: {
        level: "info",
        message: "The webhook configuration trusts the published CAs",
        fields: ({ resource, fingerprint }) => ({ registration: resource, fingerprint }),
        count() {
          writes.inc({});
          unlessSaid("", {});
        },
      },
      acknowledged: {
        level: "info",
        message: "The cell acknowledged the published CAs",
        count: () => void unlessSaid("", {}),
      },
      failed: {
        level: "warn",
        message: "caBundle of the webhook configuration could not be updated, and stays unchanged",
        fields: ({ what, tag, message }) => unlessSaid(`${what} ${tag}`, { object: what, tag, error: message }),
        count: counted(metrics, {
          name: "registration_ca_failures_total",
          help:
            "Failed reads and writes for caBundle of the cell's webhook " +
            "configuration, which are repeated, by reason.",
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
    "1 when the webhook configurations of the cell are as declared, else 0; absent on a standby.",
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

/** An Event's message has at most 1024 characters. */
const MAX_TOLD = 3;

type Alteration = (ConfigurationEvent & { readonly kind: "changed" })["alteration"];

/** ` by kubectl-edit: failurePolicy of pods.podseidon.kubewharf.io is Ignore, it was Fail, and 2 more` */
function told({ changes, writer }: Alteration): string {
  const by = writer === undefined ? "" : ` by ${writer}`;
  const more = changes.length > MAX_TOLD ? `, and ${changes.length - MAX_TOLD} more` : "";
  const texts = changes.slice(0, MAX_TOLD).map(({ text }) => text);
  return `${by}${texts.length === 0 ? "" : `: ${texts.join(", ")}${more}`}`;
}

function isWeaker({ changes }: Alteration): boolean {
  return changes.some((one) => one.isWeaker);
}

export function observeKeeper({ metrics, log, events, name }: KeeperSinks): (event: ConfigurationEvent) => void {
  return observeEvents<ConfigurationEvent>(
    { log, events },
    {
      restored: {
        level: "error",
        message: "A webhook configuration was missing or altered and was restored",
        count: counted(metrics, {
          name: "registration_restores_total",
          help: "Times that a missing or altered webhook configuration of the cell was restored.",
          labels: { resource: RESOURCES, why: ["missing", "altered"] },
          of: ({ resource, why }) => ({ resource, why }),
        }),
        fields: ({ alteration }) => ({
          changes: alteration.changes.map(({ text }) => text),
          writer: alteration.writer,
        }),
        note: ({ resource, why, uid, alteration }) => ({
          regarding: { apiVersion: "admissionregistration.k8s.io/v1", kind: KINDS[resource], name, uid },
          type: "Warning",
          reason: why === "missing" ? "RegistrationMissing" : "RegistrationAltered",
          message:
            why === "missing"
              ? `the ${KINDS[resource]} ${name} was missing and was restored: ` +
                "without it, kube-apiserver deletes pods without asking the webhook"
              : `the ${KINDS[resource]} ${name} was altered${told(alteration)}, and was put back. ` +
                "To change it, change its declaration: kubectl apply, server-side apply or Helm",
        }),
      },
      changed: {
        line: ({ alteration }) =>
          isWeaker(alteration)
            ? ["warn", "The declaration of a webhook configuration was changed, and may ask about less"]
            : ["info", "The declaration of a webhook configuration was changed"],
        fields: ({ alteration }) => ({
          changes: alteration.changes.map(({ text }) => text),
          writer: alteration.writer,
        }),
        count: counted(metrics, {
          name: "registration_changes_total",
          help: "Changes of the declaration of a webhook configuration of the cell; weaker: it may ask about less.",
          labels: { resource: RESOURCES, effect: ["weaker", "other"] },
          of: ({ resource, alteration }) => ({ resource, effect: isWeaker(alteration) ? "weaker" : "other" }),
        }),
        note: ({ resource, alteration }) => ({
          regarding: { apiVersion: "admissionregistration.k8s.io/v1", kind: KINDS[resource], name },
          type: isWeaker(alteration) ? "Warning" : "Normal",
          reason: isWeaker(alteration) ? "RegistrationWeakened" : "RegistrationChanged",
          message: `the ${KINDS[resource]} ${name} was declared differently${told(alteration)}`,
        }),
      },
      adopted: { level: "info", message: "The declared form of a webhook configuration is on record" },
      unknown: {
        level: "error",
        message: "The webhook configuration is missing, and its declared form is unknown: apply the manifests",
      },
      failed: {
        level: "warn",
        message: "A webhook configuration could not be checked; the check is repeated",
        count: counted(metrics, {
          name: "registration_failures_total",
          help: "Failed calls that keep the webhook configurations of the cell; they are repeated.",
          labels: { resource: RESOURCES },
          of: ({ resource }) => ({ resource }),
        }),
      },
    },
  );
}
