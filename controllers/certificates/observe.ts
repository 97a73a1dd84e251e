/** Metrics and log lines of what makes certificates. */
import { X509Certificate } from "node:crypto";
import type { Log } from "../../shared/observe/log.ts";
import type { Metrics } from "../../shared/observe/metrics.ts";
import type { CertificateEvent, CertificateKeeper } from "./keeper.ts";
import { untrusting } from "./plan.ts";

const STEPS = ["createAuthority", "publish", "issue"] as const;
const FAILURES = ["conflict", "gone", "rejected", "unavailable"] as const;

export function keeperObserver(metrics: Metrics, log: Log): (event: CertificateEvent) => void {
  const steps = metrics.counter({
    name: "certificates_steps_total",
    help: "Authorities made and published, and serving certificates issued.",
    labels: { step: STEPS },
  });
  const failures = metrics.counter({
    name: "certificates_failures_total",
    help: "Looks at the certificates that failed and are repeated, by why.",
    labels: { reason: FAILURES },
  });
  let said = "";
  /** What stays the same is not said every few seconds. */
  const isNew = (text: string): boolean => {
    if (text === said) return false;
    said = text;
    return true;
  };
  return (event) => {
    if (event.kind === "failed") {
      failures.inc({ reason: event.tag });
      const { object, tag, message } = event;
      if (isNew(message)) log.warn({ object, tag, error: message }, "The certificates could not be looked after");
      return;
    }
    const { step } = event;
    const text = JSON.stringify(step);
    switch (step.kind) {
      case "none":
        isNew(text);
        return;
      case "wait":
        if (isNew(text)) log.info({ cells: step.cells }, "A new authority waits until every cell trusts it");
        return;
      case "issue":
        steps.inc({ step: "issue" });
        if (step.reason === "overdue") {
          log.error(
            {},
            "The certificate is about to expire: one of a new authority is used, which some cells do not trust yet",
          );
        } else log.info({ reason: step.reason }, "A serving certificate was issued");
        return;
      case "createAuthority":
        steps.inc({ step: "createAuthority" });
        log.info({ reason: step.reason }, "An authority was made");
        return;
      case "publish":
        steps.inc({ step: "publish" });
        log.info({ authorities: step.certificates.length }, "Authorities were published");
        return;
    }
  };
}

/** Gauges that are asked for at each scrape. */
export function keeperMetrics(metrics: Metrics, keeper: CertificateKeeper): void {
  metrics.gaugeFrom(
    {
      name: "certificates_expiration_timestamp_seconds",
      help: "Unix time at which the newest certificate expires: the authority's, and what the webhook is to serve.",
      labels: { certificate: ["authority", "serving"] },
    },
    (set) => {
      const { authority, serving } = keeper.state ?? {};
      const expires = (pem: string): number => new X509Certificate(pem).validToDate.getTime() / 1000;
      if (authority !== undefined) set({ certificate: "authority" }, expires(authority.certificatePem));
      if (serving !== undefined) set({ certificate: "serving" }, expires(serving.certificatePem));
    },
  );
  metrics.gaugeFrom(
    {
      name: "certificates_untrusting_cells",
      help: "Cells whose registration does not have the published authorities yet; a rotation waits for them.",
    },
    (set) => {
      if (keeper.state !== undefined) set({}, untrusting(keeper.state).length);
    },
  );
}
