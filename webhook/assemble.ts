import { ProtectorVersion } from "../shared/decide/state/protector-version.ts";
import { ApiClient } from "../shared/kube/client/api-client.ts";
import { Reflector } from "../shared/kube/informer/reflector.ts";
import type { WatchEvent } from "../shared/kube/stream/watch-event.ts";
import type { Log } from "../shared/observe/log.ts";
import type { Ports } from "../shared/runtime/clock.ts";
import { GROUP, PLURAL, VERSION } from "../shared/schema/annotations.ts";
import type { Pod } from "../shared/schema/pod.ts";
import { parsePodProtector } from "../shared/schema/podprotector.ts";
import { AdmissionHandler, type AdmissionRecord } from "./handler.ts";
import type { CallHandler } from "./http/server.ts";
import { CONFIRM_EVERY_MS } from "./limits.ts";
import type { WebhookParts } from "./parts.ts";
import type { WebhookRecovery } from "./recovery.ts";
import type { Permissions } from "./request/bypass-permission.ts";
import { type CellClient, createPodReader } from "./request/cell-client.ts";
import { dropsFields } from "./reserve/dropped-fields.ts";
import { Nonces } from "./reserve/nonces.ts";
import { OutageDetector } from "./reserve/outage-detector.ts";
import { Pipeline } from "./reserve/pipeline.ts";
import { type LostProtectorObserver, ProtectorCache } from "./reserve/protector-cache.ts";
import { createProtectorClient } from "./reserve/protector-client.ts";
import { RecentReservations } from "./reserve/recent-reservations.ts";
import type { WriterObserver } from "./reserve/writer-observer.ts";
import type { PendingMark } from "./respond/pending-mark.ts";

/** One replica of the webhook without its HTTP server: what the process and the simulation have in common. */
export interface Webhook {
  readonly handle: CallHandler;
  readonly cores: readonly ProtectorCache[];
  /** Begins to watch the core clusters. */
  start(): void;
  stop(): Promise<void>;
  /** What keeps reviews from being decided, core by core. */
  problems(): string[];
}

const NOT_LOADED = "it is not known yet which protectors have vanished";
const PROTECTORS = `/apis/${GROUP}/${VERSION}/${PLURAL}`;

function observe(name: string, { log, metrics }: WebhookParts, memory: RecentReservations): WriterObserver {
  return {
    wrote(result, requests, tookMs, message) {
      metrics.wrote(name, result, requests, tookMs);
      if (result !== "written" && result !== "conflict") {
        log.warn({ core: name, result, requests, tookMs, error: message }, "A protector's status could not be written");
      }
    },
    read(purpose, result, message) {
      metrics.read(name, purpose, result);
      if (result !== "found")
        log.warn({ core: name, purpose, result, error: message }, "A protector could not be read");
    },
    historyLost(finding, before, now) {
      metrics.historyLost(name, finding);
      log.warn(
        { core: name, protector: now.key, finding, before: before.version, now: now.version },
        "A protector's history may be lost; its cells are put on hold",
      );
      const cells = new Set(before.object.status?.cells.map(({ cellID }) => cellID));
      memory.lost(now.key, finding === "wentBack" ? "WentBack" : "Replaced", cells);
    },
    committed(entry, round) {
      memory.remember(entry.key, round);
      if (metrics.exact(name, !dropsFields(entry, round))) return;
      log.error(
        { core: name, protector: entry.key },
        "The PodProtector CRD of a core drops fields of this project: reservations are no longer exact; apply the CRD of this release",
      );
    },
    crashed(error) {
      metrics.crashed();
      log.error({ core: name, error }, "A decision failed because of a defect");
    },
  };
}

function observeGhosts(core: string, { log, metrics }: WebhookParts): LostProtectorObserver {
  return {
    vanished({ key, uid }, isKept) {
      metrics.ghost(core, "vanished");
      const fields = { core, protector: key, uid };
      if (isKept) log.error(fields, "A protector vanished without a release; its pods are refused until it is back");
      else log.error(fields, "Too many protectors have vanished: this one does not protect any more");
    },
    ended({ key, uid }, how) {
      metrics.ghost(core, how);
      log.warn({ core, protector: key, uid, how }, "A protector that had vanished is over");
    },
  };
}

function logReview(log: Log, record: AdmissionRecord): void {
  if (record.outcome === "unprotected" || record.outcome === "exempt" || record.outcome === "ignored") return;
  const { kind, outcome, cell, uid, username, pod, durationMs, message, failure, judgements, blockers } = record;
  const protectors = (judgements?.map(({ match }) => match) ?? blockers ?? []).map(
    ({ core, namespace, name }) => `${core}/${namespace}/${name}`,
  );
  const fields = { review: uid, kind, outcome, cell, username, pod, durationMs, protectors, message, failure };
  if (outcome === "failed") log.warn(fields, "A review could not be decided");
  else if (outcome === "allowed" || outcome === "bound") log.debug(fields, "Review");
  else log.info(fields, "Review");
}

/** Tags of failures that say nothing of the server but that it was not heard. */
const SILENT: ReadonlySet<string> = new Set(["timeout", "dns"]);

function noteWatch(outage: OutageDetector, event: WatchEvent): void {
  if (event.kind === "failed") outage.failed(SILENT.has(event.tag));
  else if (event.kind === "listed" && event.reason === "standstill") outage.passed();
  else if (event.kind === "listed" || event.kind === "watching" || event.kind === "confirmed") outage.succeeded();
}

/** Loaded for the first pod that has the annotation. */
function permissionsOf(api: ApiClient, ports: Ports): NonNullable<CellClient["mayBypass"]> {
  let permissions: Permissions | undefined;
  return async (user, namespace, timeoutMs) => {
    const { Permissions } = await import("./request/bypass-permission.ts");
    permissions ??= new Permissions(api, ports);
    return permissions.mayBypass(user, namespace, timeoutMs);
  };
}

/** Loaded for the first pod that is held back. */
function pendingMarker(api: ApiClient, cell: string, log: Log): (pod: Pod) => void {
  let marks: Promise<PendingMark> | undefined;
  const load = async (): Promise<PendingMark> => {
    const { PendingMark } = await import("./respond/pending-mark.ts");
    return new PendingMark(api, (error) => log.warn({ cell, error }, "A pending disruption could not be marked"));
  };
  return (pod) => {
    marks ??= load();
    void marks.then((loaded) => loaded.mark(pod));
  };
}

/** Wires one replica. */
export function assembleWebhook(parts: WebhookParts): Webhook {
  const { ports, log, metrics } = parts;
  const watches = new Map<string, Reflector<ProtectorVersion>>();
  let outlive: WebhookRecovery | "loading" | undefined = parts.outlive ? "loading" : undefined;
  const nonces = new Nonces(ports.random);
  const cores = parts.cores.map(({ name, transport }) => {
    const outage = new OutageDetector(ports.clock);
    const watch = new Reflector<ProtectorVersion>({
      name: `protectors of core ${name}`,
      transport,
      ports,
      path: PROTECTORS,
      parse: (raw) => new ProtectorVersion(parsePodProtector(raw), ports.clock.monotonicMs()),
      keyOf: (entry) => entry.key,
      uidOf: (entry) => entry.uid,
      versionOf: (entry) => entry.version,
      confirmEveryMs: CONFIRM_EVERY_MS,
      // A protector that can't be read any more protects as it did before.
      unparsable: "keepLast",
      onEvent: (event) => {
        if (event.kind === "unparsable") metrics.unparsable(name);
        noteWatch(outage, event);
        if (event.kind === "versionWentBack") core.restored(true);
        if (event.kind === "listed") core.restored(false);
        parts.onWatchEvent?.(name, event);
      },
    });
    watches.set(name, watch);
    const memory = new RecentReservations({
      ports,
      settleMs: parts.settleMs,
      submit: (key, work) => core.submit(key, work),
    });
    const calls = createProtectorClient(new ApiClient(transport), outage);
    const observer = observe(name, parts, memory);
    const core: ProtectorCache = new ProtectorCache({
      name,
      source: watch,
      calls,
      ports,
      observer,
      tag: nonces.tag,
      settleMs: parts.settleMs,
      recovering: () => outage.recovering || watch.isDoubtful,
      cameBack: () => outage.passed(),
      ghosts: observeGhosts(name, parts),
      releases: {
        has: (uid) => typeof outlive === "object" && outlive.isReleased(name, uid),
        inForce: (protector) => {
          if (typeof outlive === "object") outlive.inForce(name, protector);
        },
      },
    });
    return core;
  });
  const cells = new Map<string, CellClient>();
  for (const { name, transport } of parts.cells) {
    const api = transport === undefined ? undefined : new ApiClient(transport);
    const readPod = api === undefined ? undefined : createPodReader(api, ports.clock);
    cells.set(name, {
      id: name,
      readPod,
      ...(api === undefined ? {} : { mayBypass: permissionsOf(api, ports) }),
      ...(parts.markPendingDisruptions && api !== undefined ? { markPending: pendingMarker(api, name, log) } : {}),
    });
  }
  const handler = new AdmissionHandler({
    cells,
    cores,
    pipeline: new Pipeline({
      cores,
      ports,
      nonces,
      settleMs: parts.settleMs,
      askOwner: parts.askOwner,
      problemOfCell: (cell) => (outlive === "loading" ? NOT_LOADED : outlive?.problemOf(cell)),
    }),
    clock: ports.clock,
    ownNamespace: parts.ownNamespace,
    dryRunMode: parts.dryRunMode,
    requireBoundEvictions: parts.requireBoundEvictions,
    bypassNeedsPermission: parts.bypassNeedsPermission ?? false,
    finished: (record) => {
      metrics.finished(record);
      logReview(log, record);
      parts.onReviewed?.(record);
    },
  });
  let stopped = false;
  const load = async (): Promise<void> => {
    const module = await import("./recovery.ts");
    if (stopped) return;
    outlive = new module.WebhookRecovery(parts, cores, watches);
    outlive.start();
  };
  return {
    handle: handler.handle,
    cores,
    start: () => {
      for (const watch of watches.values()) watch.start();
      if (outlive === "loading") void load();
    },
    stop: async () => {
      stopped = true;
      if (typeof outlive === "object") await outlive.stop();
      await Promise.all([...watches.values()].map((watch) => watch.stop()));
    },
    problems: () => [
      ...cores.flatMap((core) => core.problem(ports.clock.monotonicMs()) ?? []),
      ...(outlive === "loading" ? [NOT_LOADED] : (outlive?.problems() ?? [])),
    ],
  };
}
