import type { ConfirmedInformer } from "../kube/informer/informer.ts";
import { LIST_REASONS, type ReflectorEvent } from "../kube/informer/reflector-options.ts";
import { WATCH_FAILURE_TAGS } from "../kube/stream/watch-failure.ts";
import type { Clock } from "../runtime/clock.ts";
import { observeEvents } from "./event-table.ts";
import type { Log } from "./log.ts";
import type { Metrics } from "./metrics.ts";

const LAG_SECONDS = [0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];
/** Reflectors of one process: kinds times clusters. */
const DEFAULT_MAX_SOURCES = 100;

export interface WatchObserver {
  /** Returns the `onEvent` of the reflector of this name. */
  observe(source: string): (event: ReflectorEvent) => void;
  /** Shows at each scrape the size, position, silence and age of the informer. */
  track(source: string, informer: Tracked): void;
}

type Tracked = Pick<ConfirmedInformer<unknown>, "size" | "synced" | "position" | "lastContactMs" | "confirmedSentMs">;

interface WatchObserverOptions {
  readonly metrics: Metrics;
  readonly log: Log;
  readonly clock: Pick<Clock, "monotonicMs">;
  readonly maxSources?: number;
}

/** Metrics and log lines of every reflector of a process. */
export function observeListWatch(options: WatchObserverOptions): WatchObserver {
  const { metrics, log, clock, maxSources = DEFAULT_MAX_SOURCES } = options;
  const source = { max: maxSources };
  const informers = new Map<string, Tracked>();
  showInformers(metrics, clock, informers, source);
  const counters = countersOf(metrics, source);
  return {
    observe(name) {
      // The series begins at zero, because PodseidonDefect notices an increase, but not a series that begins with 1.
      counters.handlerFailures.inc({ source: name }, 0);
      return observeSource(name, counters, log);
    },
    track: (name, informer) => void informers.set(name, informer),
  };
}

function observeSource(source: string, counters: Counters, log: Log): (event: ReflectorEvent) => void {
  const fields = ({ kind: _, ...rest }: ReflectorEvent) => ({ source, ...rest });
  const usual = {
    level: "debug",
    message: "watch",
    fields: ({ kind, ...rest }: ReflectorEvent) => ({ source, event: kind, ...rest }),
  } as const;
  return observeEvents<ReflectorEvent>(
    { log, fields },
    {
      listed: {
        level: "info",
        message: "complete list",
        count: ({ reason }) => counters.lists.inc({ source, reason }),
      },
      watching: { ...usual, count: () => counters.streams.inc({ source }) },
      ended: {
        ...usual,
        count: ({ events, bookmarks }) => {
          counters.events.inc({ source }, events);
          counters.bookmarks.inc({ source }, bookmarks);
        },
      },
      failed: {
        level: "warn",
        message: "list or watch failed",
        count: ({ tag }) => counters.failures.inc({ source, tag }),
      },
      unparsable: { level: "error", message: "object can't be read", count: () => counters.unparsable.inc({ source }) },
      versionWentBack: {
        level: "error",
        message: "server went back to an older state",
        count: () => counters.wentBack.inc({ source }),
      },
      handlerFailed: {
        level: "error",
        message: "handler failed",
        count: () => counters.handlerFailures.inc({ source }),
      },
      confirmed: { ...usual, count: ({ lagMs }) => counters.lag.observe({ source }, lagMs / 1000) },
    },
  );
}

type SourceLabel = { readonly max: number };
type Counters = ReturnType<typeof countersOf>;

function countersOf(metrics: Metrics, source: SourceLabel) {
  const counter = (name: string, help: string) => metrics.counter({ name, help, labels: { source } });
  return {
    lists: metrics.counter({
      name: "watch_lists_total",
      help: "Complete lists, by why they were made; all but the first of a source are relists.",
      labels: { source, reason: LIST_REASONS },
    }),
    failures: metrics.counter({
      name: "watch_failures_total",
      help: "Lists, watches and confirmations that failed and are tried again, by why.",
      labels: { source, tag: WATCH_FAILURE_TAGS },
    }),
    streams: counter("watch_streams_total", "Watch streams that were opened."),
    events: counter("watch_events_total", "Events of streams that ended as they should."),
    bookmarks: counter("watch_bookmarks_total", "Bookmarks of streams that ended as they should."),
    unparsable: counter(
      "watch_unparsable_objects_total",
      "Objects that could not be read and were kept out, or as they were.",
    ),
    wentBack: counter(
      "watch_versions_went_back_total",
      "Servers that were found in an older state than before: restored from a backup.",
    ),
    handlerFailures: counter("watch_handler_failures_total", "Handlers that threw: defects of this program."),
    lag: metrics.histogram({
      name: "watch_confirmation_lag_seconds",
      help: "How long the stream needed to reach the version of a quorum read, from when that was sent.",
      labels: { source },
      buckets: LAG_SECONDS,
    }),
  };
}

function showInformers(
  metrics: Metrics,
  clock: Pick<Clock, "monotonicMs">,
  informers: ReadonlyMap<string, Tracked>,
  source: SourceLabel,
): void {
  const gauge = (name: string, help: string, read: (informer: Tracked) => number | undefined): void => {
    metrics.gaugeFrom({ name, help, labels: { source } }, (set) => {
      for (const [key, informer] of informers) {
        const value = read(informer);
        if (value !== undefined && Number.isFinite(value)) set({ source: key }, value);
      }
    });
  };
  const age = (sinceMs: number | undefined): number | undefined =>
    sinceMs === undefined ? undefined : (clock.monotonicMs() - sinceMs) / 1000;
  gauge("watch_synced", "1 once the first complete list is there.", ({ synced }) => Number(synced));
  gauge("watch_objects", "Objects that are kept.", ({ size }) => size);
  gauge("watch_position", "The resourceVersion that the store is at.", ({ position }) =>
    position === undefined ? undefined : Number(position),
  );
  gauge("watch_silence_seconds", "Time since the server last sent anything.", ({ lastContactMs }) =>
    age(lastContactMs),
  );
  const help = "Age of the newest quorum read that the store has reached.";
  gauge("watch_confirmed_age_seconds", help, ({ confirmedSentMs }) => age(confirmedSentMs));
}
