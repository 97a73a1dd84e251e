import { createHttpsTransport } from "../shared/kube/client/https-transport.ts";
import type { Transport } from "../shared/kube/client/transport.ts";
import { accessOrExit } from "../shared/kube/credentials/kubeconfig.ts";
import type { CoreTokensOptions } from "../shared/observe/core-tokens.ts";
import { createLog, type Log } from "../shared/observe/log.ts";
import { Metrics } from "../shared/observe/metrics.ts";
import { observeKubeconfigs, observeKubernetesEvents, observeLifecycle } from "../shared/observe/process-observer.ts";
import { aborted } from "../shared/runtime/clock.ts";
import { HealthServer, type ServerFactory } from "../shared/runtime/health-server.ts";
import { Lifecycle, type Part } from "../shared/runtime/lifecycle.ts";
import { loadOnce } from "../shared/runtime/load-once.ts";
import { mounted } from "../shared/runtime/mount-root.ts";
import type { NamedPath } from "../shared/runtime/options/option-types.ts";
import { systemPorts } from "../shared/runtime/system-ports.ts";
import { systemProcess } from "../shared/runtime/system-process.ts";
import { version } from "../shared/runtime/version.ts";
import { assembleWebhook, type Webhook, type WebhookParts } from "./assemble.ts";
import type { CallerTokens } from "./http/caller-tokens.ts";
import type { WebhookServer } from "./http/server.ts";
import { watchServingCertificate } from "./http/serving-certificate.ts";
import { declareGauges, observeWebhook, type WebhookEvent } from "./observe.ts";
import { observeAdmissions } from "./observe-reviews.ts";
import type { WebhookFlags } from "./options.ts";
import { OwnerProbes } from "./probe/owner-probes.ts";
import type { AdmissionRecord } from "./respond/admission-response.ts";
import { DisruptionEvents } from "./respond/disruption-events.ts";
import { singleAttempts } from "./respond/single-attempt.ts";

/** From the end of the shutdown delay to the exit: longer than the longest admission request can be in flight. */
const DRAIN_MS = 31_000;

type OnKubeconfig = ReturnType<typeof observeKubeconfigs>;

async function connect(flag: string, { name, path }: NamedPath, onKubeconfig: OnKubeconfig): Promise<Transport> {
  const access = await accessOrExit("podseidon-webhook", `${flag} ${name}`.trim(), path ?? "", onKubeconfig);
  return createHttpsTransport(access, { ports: systemPorts, userAgent: `podseidon-webhook/${version}` });
}

/** Authenticates each reader of /metrics, if configured. */
async function guardOf({ metricsAuth }: WebhookFlags, onKubeconfig: OnKubeconfig): Promise<ServerFactory | undefined> {
  if (metricsAuth === "") return undefined;
  const { guardedServers } = await import("../shared/observe/metrics-auth.ts");
  const toReviews = (path: string): Promise<Transport> => connect("--metrics-auth", { name: "", path }, onKubeconfig);
  return guardedServers(metricsAuth, toReviews, systemPorts);
}

/** Selects the protectors that decide, if configured. An invalid selector ends the process. */
async function selectorOf({ protectorSelector }: WebhookFlags): Promise<WebhookParts["selects"]> {
  if (protectorSelector.trim() === "") return undefined;
  const { selects } = await import("../shared/decide/availability/selector-text.ts");
  const found = selects(protectorSelector);
  if (found === undefined) throw new Error(`--protector-selector: not a label selector: ${protectorSelector}`);
  return found;
}

/**
 * Returns a function that counts and logs each finished admission request. No request is lost while the second module
 * loads.
 */
function finishedObserver(options: WebhookFlags, metrics: Metrics, log: Log): (record: AdmissionRecord) => void {
  const observe = observeAdmissions(metrics, log);
  let byName: ((record: AdmissionRecord) => void) | undefined;
  const loading = import("./observe-names.ts").then(({ observeNames }) => {
    byName = observeNames(metrics, options);
    return byName;
  });
  return (record) => {
    observe(record);
    if (byName === undefined) void loading.then((loaded) => loaded(record));
    else byName(record);
  };
}

type OnEvent = (event: WebhookEvent) => void;

function watchCertificate(options: WebhookFlags, server: WebhookServer, onEvent: OnEvent): () => void {
  return watchServingCertificate({
    ...options,
    served: server.certificate,
    timers: systemPorts.timers,
    changed: (certificate) => {
      server.setCertificate(certificate);
      onEvent({ kind: "certificateReloaded", file: options.tlsCertFile });
    },
    failed: (error) => onEvent({ kind: "certificateUnusable", error }),
  });
}

function createLifecycle({ shutdownDelay }: WebhookFlags, server: WebhookServer, log: Log): Lifecycle {
  const logLifecycle = observeLifecycle(log);
  return new Lifecycle({
    ports: systemPorts,
    process: systemProcess,
    unreadyMs: shutdownDelay,
    graceMs: shutdownDelay + DRAIN_MS,
    onEvent: (event) => {
      logLifecycle(event);
      if (event.kind === "stopping") server.retire();
    },
  });
}

/** Loads the verification of tokens with the first token. */
function callersOf(
  { requireCallerToken: isRequired }: WebhookFlags,
  cells: WebhookParts["cells"],
  server: WebhookServer,
): Pick<CallerTokens, "check"> {
  const load = loadOnce(async () => {
    const { CallerTokens, servesHost } = await import("./http/caller-tokens.ts");
    const servesUrl = (host: string): boolean => servesHost(server.certificate, host);
    return new CallerTokens({ cells, isRequired, ports: systemPorts, servesHost: servesUrl });
  });
  return {
    check: (caller) =>
      caller.authorization === undefined && !isRequired ? undefined : load().then((tokens) => tokens.check(caller)),
  };
}

/** Loads the renewal of tokens once the webhook serves. */
function coreTokens(options: CoreTokensOptions): Part {
  let end = (): void => {};
  return {
    name: "core tokens",
    start: async () => {
      end = (await import("../shared/observe/core-tokens.ts")).followCoreTokens(options);
    },
    stop: () => end(),
  };
}

/** Everything behind the open port: connects, serves, and resolves with the exit code when the process is to end. */
export async function run(options: WebhookFlags, server: WebhookServer): Promise<number> {
  const log = createLog({ component: "webhook", level: options.logLevel === "trace" ? "debug" : options.logLevel });
  const metrics = new Metrics({ processMetrics: true });
  const onKubeconfig = observeKubeconfigs(metrics, log);
  const cores = await Promise.all(
    options.core.map(async (core) => ({ ...core, transport: await connect("--core", core, onKubeconfig) })),
  );
  const cells = await Promise.all(
    options.cell.map(async (cell) => ({
      name: cell.name,
      transport: cell.path === undefined ? undefined : await connect("--cell", cell, onKubeconfig),
    })),
  );
  const onEvent = observeWebhook(metrics, log, systemPorts.clock);
  const onFinished = finishedObserver(options, metrics, log);
  const owners = new OwnerProbes({
    ...{ metrics, log, ports: systemPorts, caFile: options.probeCaFile, allowed: options.probeAllow },
    ...{ clientCertFile: options.probeClientCertFile, clientKeyFile: options.probeClientKeyFile },
  });
  const uidIn = (core: string) => (key: string) => webhook.cores.find(({ name }) => name === core)?.uidOf(key);
  const events = new DisruptionEvents({
    cores: cores.map((core) => ({ ...core, uidOf: uidIn(core.name) })),
    cells,
    ports: systemPorts,
    onOutcome: observeKubernetesEvents(metrics),
    tellsAccepted: options.acceptedEvents,
  });
  const { requireBoundEvictions, bypassNeedsPermission, markPendingDisruptions, outlive } = options;
  const webhook: Webhook = assembleWebhook({
    ...{ cores, cells, ports: systemPorts, onEvent, selects: await selectorOf(options) },
    ...{ requireBoundEvictions, bypassNeedsPermission, markPendingDisruptions, outlive },
    settleMs: options.settlePeriod,
    reviewsNodes: options.reviewNodes,
    statusRules: {
      reviewsStatus: options.reviewStatus,
      nodeGroups: options.nodeGroups,
      voluntaryGates: options.voluntaryGates,
    },
    ownNamespace: options.namespace,
    dryRunMode: options.dryRun,
    askOwner: owners.ask,
    singleAttempts: singleAttempts(options.singleAttemptUser, options.singleAttemptRetryAfter),
    onFinished: options.kubernetesEvents ? (record) => void [onFinished(record), events.record(record)] : onFinished,
  });
  declareGauges(metrics, server, webhook.cores, systemPorts.clock);
  const stopReload = watchCertificate(options, server, onEvent);
  const stop = async (): Promise<void> => {
    owners.close();
    await events.stop();
    for (const { transport } of [...cores, ...cells]) transport?.close();
  };
  const lifecycle = createLifecycle(options, server, log);
  const health = new HealthServer(options, lifecycle, metrics, await guardOf(options, onKubeconfig));
  lifecycle
    .add({ name: "health", start: () => health.start(), stop: () => health.stop() })
    .add({
      name: "cores",
      start: () => webhook.start(),
      ready: () => webhook.problems().join("; ") || undefined,
      stop: () => webhook.stop().then(stop),
    })
    .add({
      name: "server",
      start: () =>
        server.serve({
          handle: webhook.handle,
          callers: callersOf(options, cells, server),
          rejected: (status, reason) => onEvent({ kind: "rejected", status, reason }),
          crashed: (error) => onEvent({ kind: "requestCrashed", error }),
        }),
      stop: async (signal) => {
        stopReload();
        await Promise.race([server.drain(), aborted(signal)]);
        await server.close();
      },
    })
    .add(coreTokens({ cores, cells, ports: systemPorts, metrics, log, mounted }));
  return lifecycle.run();
}
