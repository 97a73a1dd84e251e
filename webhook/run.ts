import { createHttpsTransport } from "../shared/kube/client/https-transport.ts";
import type { Transport } from "../shared/kube/client/transport.ts";
import { accessOrExit } from "../shared/kube/credentials/access-or-exit.ts";
import type { WatchEvent } from "../shared/kube/stream/watch-event.ts";
import { createLog, type Log } from "../shared/observe/log.ts";
import { Metrics } from "../shared/observe/metrics.ts";
import { processHealth } from "../shared/observe/process-health.ts";
import { observeKubernetesEvents, observeLifecycle } from "../shared/observe/process-observer.ts";
import { Lifecycle } from "../shared/runtime/lifecycle.ts";
import type { NamedPath } from "../shared/runtime/options/option-types.ts";
import { systemPorts } from "../shared/runtime/system-ports.ts";
import { systemProcess } from "../shared/runtime/system-process.ts";
import { version } from "../shared/runtime/version.ts";
import { assembleWebhook, type Webhook } from "./assemble.ts";
import { watchServingCertificate } from "./http/certificate-reload.ts";
import type { WebhookServer } from "./http/server.ts";
import { certificateExpiryMs, certificateFiles } from "./http/serving-certificate.ts";
import { WebhookMetrics } from "./metrics.ts";
import type { WebhookFlags } from "./options.ts";
import { OwnerProbes } from "./probe/owner-probes.ts";
import { DisruptionEvents } from "./respond/disruption-events.ts";

/** From SIGTERM to the exit, the shutdown delay included: longer than the longest review that can be under way. */
const DRAIN_MS = 31_000;

async function connect(flag: string, { name, path }: NamedPath): Promise<Transport> {
  const access = await accessOrExit("podseidon-webhook", `${flag} ${name}`, path ?? "");
  return createHttpsTransport(access, { ports: systemPorts, userAgent: `podseidon-webhook/${version}` });
}

function logWatch(log: Log, core: string, event: WatchEvent): void {
  if (event.kind === "failed") log.warn({ core, ...event }, "Watching the protectors of a core failed");
  else if (event.kind === "unparsable") log.error({ core, ...event }, "A protector cannot be read");
  else if (event.kind === "versionWentBack") log.warn({ core, ...event }, "A core cluster went back in time");
  else log.debug({ core, ...event }, "Watching the protectors of a core");
}

function watchCertificate(options: WebhookFlags, server: WebhookServer, metrics: WebhookMetrics, log: Log): () => void {
  return watchServingCertificate({
    ...certificateFiles(options),
    served: server.certificate,
    timers: systemPorts.timers,
    changed: (certificate) => {
      server.setCertificate(certificate);
      metrics.reloaded("ok");
      log.info({ file: options.tlsCertFile }, "The serving certificate was read again");
    },
    failed: (error) => {
      metrics.reloaded("failed");
      log.error({ error }, "The new serving certificate cannot be used; the old one stays");
    },
  });
}

function declareGauges(metrics: Metrics, webhook: Webhook, server: WebhookServer): void {
  const core = { max: 100 };
  metrics.gaugeFrom(
    { name: "webhook_reviews_in_flight", help: "Reviews that are not answered yet.", labels: {} },
    (set) => set({}, server.inFlight),
  );
  metrics.gaugeFrom(
    {
      name: "webhook_review_bodies_bytes",
      help: "Memory for the bodies of reviews that are not answered yet.",
      labels: {},
    },
    (set) => set({}, server.bodyBytes),
  );
  metrics.gaugeFrom(
    {
      name: "webhook_certificate_expiration_timestamp_seconds",
      help: "Unix time at which the serving certificate that is in use expires.",
    },
    (set) => set({}, certificateExpiryMs(server.certificate) / 1000),
  );
  metrics.gaugeFrom(
    { name: "webhook_protectors", help: "Protectors known, by core cluster.", labels: { core } },
    (set) => {
      for (const { name, size } of webhook.cores) set({ core: name }, size);
    },
  );
  metrics.gaugeFrom(
    { name: "webhook_ghosts", help: "Protectors that vanished without a release, by core cluster.", labels: { core } },
    (set) => {
      for (const { name, ghosts } of webhook.cores) set({ core: name }, ghosts);
    },
  );
  metrics.gaugeFrom(
    {
      name: "webhook_protectors_suspended",
      help: "Protectors that admit every disruption at the moment, by core cluster.",
      labels: { core },
    },
    (set) => {
      for (const one of webhook.cores) set({ core: one.name }, one.suspended(systemPorts.clock.nowMs()));
    },
  );
  metrics.gaugeFrom(
    {
      name: "webhook_cache_age_seconds",
      help: "Time since the protectors of a core were last known to be current; decisions need less than 15.",
      labels: { core },
    },
    (set) => {
      for (const one of webhook.cores) {
        const ageMs = one.cacheAgeMs(systemPorts.clock.monotonicMs());
        if (Number.isFinite(ageMs)) set({ core: one.name }, ageMs / 1000);
      }
    },
  );
}

/** Everything behind the open port: connects, serves, and resolves with the exit code when the process is to end. */
export async function run(options: WebhookFlags, server: WebhookServer): Promise<number> {
  const log = createLog({ component: "webhook", level: options.logLevel === "trace" ? "debug" : options.logLevel });
  const cores = await Promise.all(
    options.core.map(async (core) => ({ name: core.name, transport: await connect("--core", core) })),
  );
  const cells = await Promise.all(
    options.cell.map(async (cell) => ({
      name: cell.name,
      transport: cell.path === undefined ? undefined : await connect("--cell", cell),
    })),
  );
  const metrics = new Metrics({ processMetrics: true });
  const webhookMetrics = new WebhookMetrics(metrics);
  const owners = new OwnerProbes({ metrics, log, ports: systemPorts, caFile: options.probeCaFile });
  const notices = new DisruptionEvents({
    cores: cores.map((core) => ({
      ...core,
      uidOf: (key) => webhook.cores.find(({ name }) => name === core.name)?.uidOf(key),
    })),
    cells,
    ports: systemPorts,
    onOutcome: observeKubernetesEvents(metrics),
  });
  const webhook: Webhook = assembleWebhook({
    cores,
    cells,
    ports: systemPorts,
    settleMs: options.settlePeriod,
    ownNamespace: options.namespace,
    dryRunMode: options.dryRun,
    requireBoundEvictions: options.requireBoundEvictions,
    bypassNeedsPermission: options.bypassNeedsPermission,
    markPendingDisruptions: options.markPendingDisruptions,
    outlive: options.outlive,
    log,
    metrics: webhookMetrics,
    onWatchEvent: (core, event) => logWatch(log, core, event),
    askOwner: owners.ask,
    ...(options.kubernetesEvents ? { onReviewed: notices.tell } : {}),
  });
  declareGauges(metrics, webhook, server);
  const stopReload = watchCertificate(options, server, webhookMetrics, log);
  const logLifecycle = observeLifecycle(log);
  const lifecycle = new Lifecycle({
    ports: systemPorts,
    process: systemProcess,
    unreadyMs: options.shutdownDelay,
    graceMs: options.shutdownDelay + DRAIN_MS,
    onEvent: (event) => {
      logLifecycle(event);
      if (event.kind === "stopping") server.retire();
    },
  });
  const health = processHealth(options, lifecycle, metrics);
  lifecycle
    .add({ name: "health", start: () => health.start(), stop: () => health.stop() })
    .add({
      name: "cores",
      start: () => webhook.start(),
      ready: () => webhook.problems().join("; ") || undefined,
      stop: async () => {
        await webhook.stop();
        owners.close();
        await notices.stop();
        for (const { transport } of [...cores, ...cells]) transport?.close();
      },
    })
    .add({
      name: "server",
      start: () =>
        server.serve({
          handle: webhook.handle,
          rejected: (status, message) => {
            webhookMetrics.rejected(status);
            log.debug({ status, reason: message }, "A call was no review");
          },
          crashed: (error) => {
            webhookMetrics.crashed();
            log.error({ error }, "A review failed because of a defect");
          },
        }),
      stop: async (signal) => {
        stopReload();
        await Promise.race([server.drain(), new Promise((resolve) => signal.addEventListener("abort", resolve))]);
        await server.close();
      },
    });
  return lifecycle.run();
}
