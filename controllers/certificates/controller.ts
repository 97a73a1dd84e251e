/**
 * The certificates controller, which runs beside the webhook: its options, and how it is wired. Read `plan.ts` next
 * (what to do), then `keeper.ts` (reads and writes).
 */
import { isIP } from "node:net";
import { createCertificateAuthority, issueCertificate } from "../../shared/certificates/x509.ts";
import { ApiClient } from "../../shared/kube/client/api-client.ts";
import { commandLine } from "../../shared/runtime/options/command-line.ts";
import { observeOptions } from "../../shared/runtime/options/common-options.ts";
import { kubeconfigOptions } from "../../shared/runtime/options/controller-options.ts";
import { duration, list, option, text } from "../../shared/runtime/options/option-types.ts";
import { defineOptions, type OptionValues } from "../../shared/runtime/options/options.ts";
import { version } from "../../shared/runtime/version.ts";
import { type Controller, type ControllerContext, type ControllerParts, DEFAULT_NAMESPACE } from "../run-controller.ts";
import { CertificateKeeper } from "./keeper.ts";
import { keeperMetrics, keeperObserver } from "./observe.ts";
import { ServerClock } from "./server-clock.ts";

const CALL_TIMEOUT_MS = 10_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** An authority lasts much longer than every certificate that it signs. */
const LEAST_RATIO = 4;
const HOST_NAME = /^(\*\.)?[a-z\d_-]+(\.[a-z\d_-]+)*$/i;

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
  check: ({ authorityLifetime, servingLifetime, dnsName = [] }) => [
    ...(authorityLifetime !== undefined &&
    servingLifetime !== undefined &&
    authorityLifetime < LEAST_RATIO * servingLifetime
      ? [`--authority-lifetime: must be at least ${LEAST_RATIO} times --serving-lifetime`]
      : []),
    // No apiserver could use a certificate for any other name, and the controller would issue it again and again.
    ...(dnsName.every((name) => HOST_NAME.test(name) || (isIP(name) !== 0 && !name.includes("%")))
      ? []
      : ["--dns-name: expected names and IP addresses, without a port"]),
  ],
});

type CertificatesFlags = OptionValues<(typeof certificatesOptions)["options"]>;

export const certificatesController: Controller<CertificatesFlags> = {
  name: certificatesOptions.name,
  flags: () => commandLine(certificatesOptions),
  graceMs: 10_000,
  build,
};

function build(context: ControllerContext<CertificatesFlags>): ControllerParts {
  const { flags, ports, log, metrics, cluster, transport } = context;
  const namespace = (flags.namespace || cluster.namespace) ?? DEFAULT_NAMESPACE;
  const serverClock = new ServerClock(ports.clock);
  const keeper = new CertificateKeeper({
    ...{ ports, namespace, serverClock },
    api: new ApiClient(serverClock.watch(transport)),
    issuer: { createCertificateAuthority, issueCertificate },
    terms: {
      authorityLifetimeMs: flags.authorityLifetime,
      servingLifetimeMs: flags.servingLifetime,
      overlapMs: flags.overlap,
      dnsNames: flags.dnsName.length > 0 ? flags.dnsName : [`podseidon-webhook.${namespace}.svc`],
    },
    intervalMs: flags.interval,
    timeoutMs: CALL_TIMEOUT_MS,
    onEvent: keeperObserver(metrics, log),
  });
  keeperMetrics(metrics, keeper);
  return { lead: (signal) => keeper.run(signal), parts: [{ name: "keeper", ready: () => keeper.problem }] };
}
