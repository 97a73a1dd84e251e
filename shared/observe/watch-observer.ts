import type { ConfirmedInformer } from "../kube/informer/informer.ts";
import type { ListReason, ReflectorEvent } from "../kube/informer/reflector-options.ts";
import type { WatchFailureTag } from "../kube/stream/watch-failure.ts";
import type { Clock } from "../runtime/clock.ts";
import type { Log } from "./log.ts";
import type { Metrics } from "./metrics.ts";

const LIST_REASONS = [
  "first",
  "expired",
  "corrupt",
  "versionWentBack",
  "outage",
  "standstill",
] as const satisfies ListReason[];
const FAILURE_TAGS = [
  "timeout",
  "aborted",
  "refused",
  "reset",
  "dns",
  "tls",
  "credentials",
  "protocol",
  "oversized",
  "unauthorized",
  "forbidden",
  "not-served",
  "throttled",
  "expired",
  "error-event",
  "corrupt",
  "inconsistent-pages",
  "ahead-of-server",
  "ended-early",
  "server-error",
  "rejected",
] as const satisfies WatchFailureTag[];
const LAG_SECONDS = [0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];
/** Sources of one process: kinds times clusters. */
const DEFAULT_MAX_SOURCES = 100;

export interface WatchObserver {
  /** The `onEvent` of the list-watch of this name. */
  observe(source: string): (event: ReflectorEvent) => void;
  /** Size, position, silence and age of the source, at each scrape. */
  track(name: string, source: Watched): void;
}

/** What of a source is shown. */
type Watched = Pick<ConfirmedInformer<unknown>, "size" | "synced" | "position" | "lastContactMs" | "confirmedSentMs">;

export interface WatchObserverOptions {
  readonly metrics: Metrics;
  readonly log: Log;
  readonly clock: Pick<Clock, "monotonicMs">;
  readonly maxSources?: number;
}

/** Metrics and log lines of every list-watch of a process. */
export function observeListWatch({
  metrics,
  log,
  clock,
  maxSources = DEFAULT_MAX_SOURCES,
}: WatchObserverOptions): WatchObserver {
  const source = { max: maxSources };
  const sources = new Map<string, Watched>();
  trackSources({ metrics, clock, sources, source });
  const counters = countersOf(metrics, source);
  return {
    observe: (name) => (event) => {
      count(counters, name, event);
      logEvent(log, name, event);
    },
    track: (name, watched) => void sources.set(name, watched),
  };
}

type SourceLabel = { readonly max: number };

function countersOf(metrics: Metrics, source: SourceLabel) {
  return {
    lists: metrics.counter({
      name: "watch_lists_total",
      help: "Complete lists, by why they were made; all but the first of a source are relists.",
      labels: { source, reason: LIST_REASONS },
    }),
    failures: metrics.counter({
      name: "watch_failures_total",
      help: "Lists, watches and confirmations that failed and are tried again, by why.",
      labels: { source, tag: FAILURE_TAGS },
    }),
    streams: metrics.counter({
      name: "watch_streams_total",
      help: "Watch streams that were opened.",
      labels: { source },
    }),
    events: metrics.counter({
      name: "watch_events_total",
      help: "Events of streams that ended as they should.",
      labels: { source },
    }),
    bookmarks: metrics.counter({
      name: "watch_bookmarks_total",
      help: "Bookmarks of streams that ended as they should.",
      labels: { source },
    }),
    unparsable: metrics.counter({
      name: "watch_unparsable_objects_total",
      help: "Objects that could not be read and were kept out, or as they were.",
      labels: { source },
    }),
    wentBack: metrics.counter({
      name: "watch_versions_went_back_total",
      help: "Servers that were found in an older state than before: restored from a backup.",
      labels: { source },
    }),
    handlerFailures: metrics.counter({
      name: "watch_handler_failures_total",
      help: "Handlers that threw: defects of this program.",
      labels: { source },
    }),
    lag: metrics.histogram({
      name: "watch_confirmation_lag_seconds",
      help: "How long the stream needed to reach the version of a quorum read, from when that was sent.",
      labels: { source },
      buckets: LAG_SECONDS,
    }),
  };
}

function count(counters: ReturnType<typeof countersOf>, source: string, event: ReflectorEvent): void {
  switch (event.kind) {
    case "listed":
      counters.lists.inc({ source, reason: event.reason });
      break;
    case "watching":
      counters.streams.inc({ source });
      break;
    case "ended":
      counters.events.inc({ source }, event.events);
      counters.bookmarks.inc({ source }, event.bookmarks);
      break;
    case "failed":
      counters.failures.inc({ source, tag: event.tag });
      break;
    case "unparsable":
      counters.unparsable.inc({ source });
      break;
    case "versionWentBack":
      counters.wentBack.inc({ source });
      break;
    case "handlerFailed":
      counters.handlerFailures.inc({ source });
      break;
    case "confirmed":
      counters.lag.observe({ source }, event.lagMs / 1000);
      break;
  }
}

function logEvent(log: Log, source: string, event: ReflectorEvent): void {
  const { kind, ...fields } = event;
  switch (kind) {
    case "listed":
      log.info({ source, ...fields }, "complete list");
      break;
    case "failed":
      log.warn({ source, ...fields }, "list or watch failed");
      break;
    case "unparsable":
      log.error({ source, ...fields }, "object can't be read");
      break;
    case "versionWentBack":
      log.error({ source, ...fields }, "server went back to an older state");
      break;
    case "handlerFailed":
      log.error({ source, ...fields }, "handler failed");
      break;
    default:
      log.debug({ source, event: kind, ...fields }, "watch");
      break;
  }
}

interface Tracking {
  readonly metrics: Metrics;
  readonly clock: Pick<Clock, "monotonicMs">;
  readonly sources: ReadonlyMap<string, Watched>;
  readonly source: SourceLabel;
}

function trackSources({ metrics, clock, sources, source }: Tracking): void {
  const gauge = (name: string, help: string, value: (watched: Watched) => number | undefined): void => {
    metrics.gaugeFrom({ name, help, labels: { source } }, (set) => {
      for (const [key, watched] of sources) {
        const shown = value(watched);
        if (shown !== undefined && Number.isFinite(shown)) set({ source: key }, shown);
      }
    });
  };
  const ageSeconds = (sinceMs: number | undefined): number | undefined =>
    sinceMs === undefined ? undefined : (clock.monotonicMs() - sinceMs) / 1000;
  gauge("watch_synced", "1 once the first complete list is there.", ({ synced }) => (synced ? 1 : 0));
  gauge("watch_objects", "Objects that are kept.", ({ size }) => size);
  gauge("watch_position", "The resourceVersion that the store is at.", ({ position }) =>
    position === undefined ? undefined : Number(position),
  );
  gauge("watch_silence_seconds", "Time since the server last sent anything.", ({ lastContactMs }) =>
    ageSeconds(lastContactMs),
  );
  gauge(
    "watch_confirmed_age_seconds",
    "Age of the newest quorum read that the store has reached.",
    ({ confirmedSentMs }) => ageSeconds(confirmedSentMs),
  );
}
