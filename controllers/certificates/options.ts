import { kubeconfigOptions, observeOptions } from "../../shared/runtime/options/common-options.ts";
import { duration, list, option, text } from "../../shared/runtime/options/option-types.ts";
import { defineOptions, type OptionValues } from "../../shared/runtime/options/options.ts";
import { version } from "../../shared/runtime/version.ts";

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** A renewed authority outlives by far every certificate that it signs. */
const LEAST_RATIO = 4;

/** The options of what makes the webhook's certificates (design 11). */
export const certificatesOptions = defineOptions({
  name: "podseidon-certificates",
  version,
  summary: "Makes and rotates the webhook's certificate and the authority that signs it.",
  options: {
    ...kubeconfigOptions,
    namespace: option(
      text("NAMESPACE"),
      "",
      "Namespace of the Secrets and ConfigMaps. Empty is the namespace of the kubeconfig or of the process.",
    ),
    dnsName: option(
      list("NAME"),
      [],
      "A name or an IP address by which apiservers call the webhook. By default podseidon-webhook.NAMESPACE.svc.",
    ),
    authorityLifetime: option(
      duration({ minMs: HOUR_MS }),
      5 * 365 * DAY_MS,
      "How long an authority is valid; the next one is made when a third of it is left.",
    ),
    servingLifetime: option(
      duration({ minMs: HOUR_MS / 4 }),
      90 * DAY_MS,
      "How long a certificate is valid; the next one is made when a third of it is left.",
    ),
    overlap: option(
      duration({ minMs: 100 }),
      10 * 60_000,
      "The least time between what is published and the next step: apiservers and replicas take it over meanwhile.",
    ),
    interval: option(duration({ minMs: 50, maxMs: HOUR_MS }), 10_000, "Pause between two looks."),
    ...observeOptions,
  },
  check: ({ authorityLifetime, servingLifetime }) =>
    authorityLifetime !== undefined &&
    servingLifetime !== undefined &&
    authorityLifetime < LEAST_RATIO * servingLifetime
      ? [`--authority-lifetime: must be at least ${LEAST_RATIO} times --serving-lifetime`]
      : [],
});

export type CertificatesFlags = OptionValues<(typeof certificatesOptions)["options"]>;
