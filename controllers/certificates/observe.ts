/** The metrics and log lines of the certificates. */
import { X509Certificate } from "node:crypto";
import { API_FAILURES } from "../../shared/kube/client/api-result.ts";
import { counted, observeEvents, unlessRepeated } from "../../shared/observe/event-table.ts";
import { gaugeOf } from "../../shared/observe/gauge.ts";
import type { Log } from "../../shared/observe/log.ts";
import type { Metrics } from "../../shared/observe/metrics.ts";
import type { CertificateEvent, CertificateKeeper } from "./keeper.ts";
import { untrusting } from "./plan.ts";

const STEPS = ["createAuthority", "publish", "issue"] as const;

export function keeperObserver(metrics: Metrics, log: Log): (event: CertificateEvent) => void {
  const count = counted<{ readonly kind: (typeof STEPS)[number] }>(metrics, {
    name: "certificates_steps_total",
    help: "CAs created and published, and serving certificates issued.",
    labels: { step: STEPS },
    of: ({ kind }) => ({ step: kind }),
  });
  // A lasting state writes one line instead of one every few seconds.
  const unlessSaid = unlessRepeated();
  return observeEvents<CertificateEvent>(
    { log },
    {
      none: { count: (event) => void unlessSaid(JSON.stringify(event), {}) },
      wait: {
        level: "info",
        message: "A new CA waits until every cell trusts it",
        fields: (event) => unlessSaid(JSON.stringify(event), { cells: event.cells }),
      },
      createAuthority: { level: "info", message: "A CA was created", count },
      publish: {
        level: "info",
        message: "The CAs were published",
        fields: ({ certificates }) => ({ authorities: certificates.length }),
        count,
      },
      issue: {
        line: ({ reason }) =>
          reason === "overdue"
            ? [
                "error",
                "The certificate is about to expire: one of a new authority is used, which some cells do not trust yet",
              ]
            : ["info", "A serving certificate was issued"],
        fields: ({ reason }) => (reason === "overdue" ? {} : { reason }),
        count,
      },
      failed: {
        level: "warn",
        message: "The certificates could not be checked",
        fields: ({ object, tag, message }) => unlessSaid(message, { object, tag, error: message }),
        count: counted(metrics, {
          name: "certificates_failures_total",
          help: "Failed checks of the certificates, which are repeated, by reason.",
          labels: { reason: API_FAILURES },
          of: ({ tag }) => ({ reason: tag }),
        }),
      },
    },
  );
}

/** Declares the gauges of a keeper. */
export function keeperMetrics(metrics: Metrics, keeper: Pick<CertificateKeeper, "state">): void {
  metrics.gaugeFrom(
    {
      name: "certificates_expiration_timestamp_seconds",
      help: "Unix time at which the newest certificate expires: the CA's, and the webhook's serving certificate.",
      labels: { certificate: ["authority", "serving"] },
    },
    (set) => {
      const { authority, serving } = keeper.state ?? {};
      const expires = (pem: string): number => new X509Certificate(pem).validToDate.getTime() / 1000;
      if (authority !== undefined) set({ certificate: "authority" }, expires(authority.certificatePem));
      if (serving !== undefined) set({ certificate: "serving" }, expires(serving.certificatePem));
    },
  );
  gaugeOf(
    metrics,
    "certificates_untrusting_cells",
    "Cells whose webhook configuration does not trust the published CAs yet; a rotation waits for them.",
    () => (keeper.state === undefined ? undefined : untrusting(keeper.state).length),
  );
}
