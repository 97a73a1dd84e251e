/** What makes certificates, as a process: options, access to the cluster, life and observation. */

import { createCertificateAuthority, issueCertificate } from "../../shared/certificates/x509.ts";
import { ApiClient } from "../../shared/kube/client/api-client.ts";
import { createHttpsTransport } from "../../shared/kube/client/https-transport.ts";
import { accessOrExit } from "../../shared/kube/credentials/access-or-exit.ts";
import { createLog } from "../../shared/observe/log.ts";
import { Metrics } from "../../shared/observe/metrics.ts";
import { processHealth } from "../../shared/observe/process-health.ts";
import { observeLifecycle } from "../../shared/observe/process-observer.ts";
import { Lifecycle } from "../../shared/runtime/lifecycle.ts";
import { commandLine } from "../../shared/runtime/options/command-line.ts";
import { systemPorts } from "../../shared/runtime/system-ports.ts";
import { systemProcess } from "../../shared/runtime/system-process.ts";
import { version } from "../../shared/runtime/version.ts";
import { CertificateKeeper } from "./keeper.ts";
import { keeperMetrics, keeperObserver } from "./observe.ts";
import { certificatesOptions } from "./options.ts";

const COMPONENT = "podseidon-certificates";
const DEFAULT_NAMESPACE = "podseidon-system";
const GRACE_MS = 10_000;
const CALL_TIMEOUT_MS = 10_000;

/** Looks after the certificates until it is told to stop; resolves with the exit code. */
export async function run(): Promise<number> {
  const options = await commandLine(certificatesOptions);
  const ports = systemPorts;
  const log = createLog({ component: "certificates", level: options.logLevel });
  const metrics = new Metrics({ processMetrics: true });
  const cluster = await accessOrExit(COMPONENT, "--kubeconfig", options.kubeconfig);
  const transport = createHttpsTransport(cluster, { ports, userAgent: `${COMPONENT}/${version}` });
  const namespace = options.namespace || cluster.namespace || DEFAULT_NAMESPACE;
  const keeper = new CertificateKeeper({
    api: new ApiClient(transport),
    ports,
    issuer: { createCertificateAuthority, issueCertificate },
    namespace,
    terms: {
      authorityLifetimeMs: options.authorityLifetime,
      servingLifetimeMs: options.servingLifetime,
      overlapMs: options.overlap,
      dnsNames: options.dnsName.length > 0 ? options.dnsName : [`podseidon-webhook.${namespace}.svc`],
    },
    intervalMs: options.interval,
    timeoutMs: CALL_TIMEOUT_MS,
    onEvent: keeperObserver(metrics, log),
  });
  keeperMetrics(metrics, keeper);
  const ending = new AbortController();
  let working: Promise<void> | undefined;
  const lifecycle = new Lifecycle({
    ports,
    process: systemProcess,
    unreadyMs: 0,
    graceMs: GRACE_MS,
    onEvent: observeLifecycle(log),
  });
  const health = processHealth(options, lifecycle, metrics);
  lifecycle
    .add({ name: "health", start: () => health.start(), stop: () => health.stop() })
    .add({ name: "transport", stop: () => transport.close() })
    .add({
      name: "keeper",
      start: () => {
        working = keeper.run(ending.signal);
      },
      ready: () => keeper.problem,
      stop: async () => {
        ending.abort();
        await working;
      },
    });
  const code = await lifecycle.run();
  log.flush();
  return code;
}
