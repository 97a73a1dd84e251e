/** One replica of the webhook without its HTTP server, wired: what the process and the simulation have in common. */

import { holdOf } from "../shared/decide/state/hold.ts";
import { ProtectorVersion } from "../shared/decide/state/protector-version.ts";
import { ApiClient } from "../shared/kube/client/api-client.ts";
import { PODPROTECTORS_PATH } from "../shared/kube/client/api-path.ts";
import type { Transport } from "../shared/kube/client/transport.ts";
import { Reflector } from "../shared/kube/informer/reflector.ts";
import type { Ports } from "../shared/runtime/clock.ts";
import { loadOnce } from "../shared/runtime/load-once.ts";
import { KIND } from "../shared/schema/annotations.ts";
import { parsePodProtector } from "../shared/schema/podprotector.ts";
import { AdmissionHandler, type HandlerOptions } from "./handler.ts";
import type { CallHandler } from "./http/call.ts";
import type { WebhookEvent } from "./observe.ts";
import type { AskOwner } from "./probe/probe-request.ts";
import type { WatchedCore, WebhookRecovery } from "./recovery.ts";
import type { BypassPermissions } from "./request/bypass-permission.ts";
import { type CellClient, createPodReader } from "./request/cell-client.ts";
import { dropsFields } from "./reserve/batch.ts";
import type { CallerShares } from "./reserve/caller-shares.ts";
import { Nonces } from "./reserve/nonces.ts";
import { OutageDetector } from "./reserve/outage-detector.ts";
import { Pipeline } from "./reserve/pipeline.ts";
import { ProtectorCache, type ProtectorCacheOptions } from "./reserve/protector-cache.ts";
import { createProtectorClient } from "./reserve/protector-client.ts";
import { RecentReservations } from "./reserve/recent-reservations.ts";
import { unreadableProtector } from "./reserve/unreadable-protector.ts";
import type { AdmissionRecord } from "./respond/admission-response.ts";
import { SINGLE_ATTEMPT_RETRY_MS, type SingleAttempts, singleAttempts } from "./respond/single-attempt.ts";

/** A cluster by its name, reached through a transport: the real one, or a simulation's. */
interface NamedTransport {
  readonly name: string;
  readonly transport: Transport;
}

/** What a replica is made of. */
export interface WebhookParts
  extends Pick<
    HandlerOptions,
    "ownNamespace" | "dryRunMode" | "requireBoundEvictions" | "bypassNeedsPermission" | "statusRules" | "reviewsNodes"
  > {
  /** Callers whose clients are told to repeat a denied deletion. Default: the known ones, after 30 s. */
  readonly singleAttempts?: SingleAttempts;
  readonly cores: readonly NamedTransport[];
  /** `transport` is undefined where evictions cannot be read live. */
  readonly cells: readonly { readonly name: string; readonly transport: Transport | undefined }[];
  readonly ports: Ports;
  readonly settleMs: number;
  /** Follows the release registers of the cores, and reads the backups of the cells at the start. Default false. */
  readonly outlive?: boolean;
  /** The protectors that decide, by their labels. Default: all. */
  readonly selects?: ProtectorCacheOptions["selects"];
  readonly onEvent: (event: WebhookEvent) => void;
  readonly onFinished: (record: AdmissionRecord) => void;
  /** Asks the owners of workloads; without it, protectors with a probe deny. */
  readonly askOwner?: AskOwner;
  /** Marks pods whose disruption waits for a pre-activity. */
  readonly markPendingDisruptions?: boolean;
}

export interface Webhook {
  readonly handle: CallHandler;
  readonly cores: readonly ProtectorCache[];
  /** Begins to watch the core clusters. */
  start(): void;
  stop(): Promise<void>;
  /** What keeps admission requests from being decided, core by core. */
  problems(): string[];
}

const NOT_LOADED = "it is not known yet which protectors have vanished";
const CONFIRM_EVERY_MS = 3_000;

function watchCore(
  { name, transport }: NamedTransport,
  parts: WebhookParts,
  tag: string,
  releases: NonNullable<ProtectorCacheOptions["releases"]>,
): WatchedCore {
  const { ports, settleMs, onEvent } = parts;
  const outage = new OutageDetector(ports.clock);
  const watch = new Reflector<ProtectorVersion>({
    name: `protectors of core ${name}`,
    transport,
    ports,
    path: PODPROTECTORS_PATH,
    kind: KIND,
    parse: (raw) => new ProtectorVersion(parsePodProtector(raw), ports.clock.monotonicMs()),
    uidOf: (version) => version.uid,
    versionOf: ({ version }) => version,
    confirmEveryMs: CONFIRM_EVERY_MS,
    // An object that has become unreadable stays in force in its last version. One that was never readable denies
    // (unreadable-protector.ts).
    unparsable: "listAgain",
    placeholder: (raw) => {
      const protector = unreadableProtector(raw);
      return protector && new ProtectorVersion(protector, ports.clock.monotonicMs());
    },
    onEvent: (event) => {
      outage.observe(event);
      if (event.kind === "versionWentBack") cache.restored(true);
      if (event.kind === "listed") cache.restored(false);
      onEvent({ kind: "watch", core: name, event });
    },
  });
  let isExact: boolean | undefined;
  const reportExactness = (isNowExact: boolean, protector: string): void => {
    if (isExact !== isNowExact) onEvent({ kind: isNowExact ? "exact" : "inexact", core: name, protector });
    isExact = isNowExact;
  };
  const recent = new RecentReservations({ ports, settleMs, submit: (key, pending) => cache.submit(key, pending) });
  const cache: ProtectorCache = new ProtectorCache({
    name,
    source: watch,
    client: createProtectorClient(new ApiClient(transport), outage),
    ports,
    onEvent: (event) => {
      if (event.kind === "committed") {
        recent.remember(event.stored.key, event.batch);
        reportExactness(!dropsFields(event.stored, event.batch), event.stored.key);
        return;
      }
      onEvent({ ...event, core: name });
      if (event.kind !== "historyLost") return;
      const { before, now, finding } = event;
      // The webhooks of other cells notice the same, and a worker's account may write the entry of its own cell only.
      const known = new Set([...before.state.cells.keys(), ...now.state.cells.keys()]);
      const own = parts.cells.map((cell) => cell.name).filter((cell) => known.has(cell));
      const reason = finding === "wentBack" ? "WentBack" : "Replaced";
      recent.reassert(now.key, holdOf(reason, ports.random.token(), ports.clock.nowMs()), own);
    },
    tag,
    isRecovering: () => outage.isRecovering || watch.hasStalled,
    isFailing: () => outage.isFailing,
    assumeOutage: () => outage.assumeOutage(),
    releases,
    selects: parts.selects,
  });
  return { watch, cache };
}

/** Bypass permissions and pending marks are loaded with the first pod that needs them. */
function createCellClient(name: string, transport: Transport | undefined, parts: WebhookParts): CellClient {
  if (transport === undefined) return { id: name, readPod: undefined };
  const { ports, onEvent } = parts;
  const api = new ApiClient(transport);
  const readPod = createPodReader(api, ports);
  let permissions: BypassPermissions | undefined;
  const markFailed = (error: string): void => onEvent({ kind: "markFailed", cell: name, error });
  const loadMark = loadOnce(async () => {
    const { PendingMark } = await import("./respond/pending-mark.ts");
    return new PendingMark(api, readPod, markFailed);
  });
  return {
    id: name,
    readPod,
    listPods: async (...asked) => {
      const { createPodLister } = await import("./request/node-deletion.ts");
      return createPodLister(api, ports)(...asked);
    },
    mayBypass: async (...asked) => {
      const { BypassPermissions } = await import("./request/bypass-permission.ts");
      permissions ??= new BypassPermissions(api, ports);
      return permissions.mayBypass(...asked);
    },
    markPending: (pod) => {
      if (parts.markPendingDisruptions !== true) return;
      loadMark().then(
        (loaded) => loaded.mark(pod),
        (error) => markFailed(String(error)),
      );
    },
  };
}

export function assembleWebhook(parts: WebhookParts): Webhook {
  const { ports, settleMs } = parts;
  const nonces = new Nonces(ports.random);
  let recovery: WebhookRecovery | "loading" | undefined = parts.outlive ? "loading" : undefined;
  let isStopped = false;
  const watched = parts.cores.map((core) =>
    watchCore(core, parts, nonces.tag, {
      hasEnded: (protector) => typeof recovery === "object" && recovery.hasEnded(core.name, protector),
      inForce: (protector) => {
        if (typeof recovery === "object") recovery.inForce(core.name, protector);
      },
    }),
  );
  const cores = watched.map(({ cache }) => cache);
  const cellProblem = (cell: string): string | undefined =>
    recovery === "loading" ? NOT_LOADED : recovery?.problemOf(cell);
  const cells = new Map(parts.cells.map(({ name, transport }) => [name, createCellClient(name, transport, parts)]));
  let shares: CallerShares | undefined;
  const loadShares = async (): Promise<CallerShares> => {
    const { CallerShares } = await import("./reserve/caller-shares.ts");
    shares ??= new CallerShares({ ports, settleMs, cells });
    return shares;
  };
  const callers: Pick<CallerShares, "keepsShare" | "reserved"> = {
    keepsShare: (...asked) => shares?.keepsShare(...asked) ?? false,
    // Where it can't be loaded now, the next one tries again.
    reserved: (...made) =>
      shares
        ? shares.reserved(...made)
        : void loadShares().then(
            (one) => one.reserved(...made),
            () => {},
          ),
  };
  const { ownNamespace, dryRunMode, requireBoundEvictions, bypassNeedsPermission = false } = parts;
  const handler = new AdmissionHandler({
    ...{ ownNamespace, dryRunMode, requireBoundEvictions, bypassNeedsPermission, cores, clock: ports.clock, settleMs },
    singleAttempts: parts.singleAttempts ?? singleAttempts([], SINGLE_ATTEMPT_RETRY_MS),
    ...(parts.statusRules && { statusRules: parts.statusRules }),
    reviewsNodes: parts.reviewsNodes ?? true,
    cells,
    pipeline: new Pipeline({ cores, ports, nonces, settleMs, callers, askOwner: parts.askOwner, cellProblem }),
    finished: parts.onFinished,
  });
  const loadRecovery = async (): Promise<void> => {
    const { WebhookRecovery } = await import("./recovery.ts");
    if (isStopped) return;
    recovery = new WebhookRecovery(parts, watched);
    recovery.start();
  };
  return {
    handle: handler.handle,
    cores,
    start: () => {
      for (const { watch } of watched) watch.start();
      if (recovery === "loading") void loadRecovery();
    },
    stop: async () => {
      isStopped = true;
      if (typeof recovery === "object") await recovery.stop();
      await Promise.all(watched.map(({ watch }) => watch.stop()));
    },
    problems: () => [
      ...cores.flatMap((core) => core.problem(ports.clock.monotonicMs()) ?? []),
      ...(recovery === "loading" ? [NOT_LOADED] : (recovery?.problems() ?? [])),
    ],
  };
}
