/** The generator's metrics, log lines and Kubernetes Events, made from what it tells (`events.ts`). */
import type { LeaderEvent } from "../../shared/kube/election/leader-election.ts";
import type { WatchEvent } from "../../shared/kube/stream/watch-event.ts";
import type { EventRecorder } from "../../shared/observe/event-recorder.ts";
import type { Log } from "../../shared/observe/log.ts";
import type { Metrics } from "../../shared/observe/metrics.ts";
import type { QueueEvent } from "../../shared/runtime/work-queue.ts";
import { GROUP, KIND, VERSION } from "../../shared/schema/annotations.ts";
import type { GeneratorEvent } from "./protectors/events.ts";
import type { GeneratorObserver } from "./setup.ts";

const WRITES = [
  "held",
  "letGo",
  "created",
  "updated",
  "restored",
  "replaced",
  "released",
  "cellsRemoved",
  "noted",
  "registerDropped",
] as const;
const PROBLEMS = ["ignored", "unresolved", "namespaceTerminating"] as const;
const FAILURES = ["conflict", "gone", "rejected", "unavailable"] as const;
/** Kinds of sources that are watched, and protectors. */
const MAX_RESOURCES = 32;

export interface Observed {
  readonly metrics: Metrics;
  readonly log: Log;
  readonly events: EventRecorder;
}

export function generatorObserver(observed: Observed): GeneratorObserver {
  const watch = watchObserver(observed);
  return {
    generator: writeObserver(observed),
    watch,
    queue: queueObserver(observed.metrics),
    leader: leaderObserver(observed),
  };
}

/** Gauges that are asked for at each scrape. */
export function stateMetrics(metrics: Metrics, state: { orphans(): number; leading(): boolean }): void {
  metrics.gaugeFrom(
    {
      name: "generator_orphaned_sources",
      help: "Sources that vanished without a release; their protectors stay in force.",
    },
    (set) => set({}, state.orphans()),
  );
  metrics.gaugeFrom({ name: "generator_leader", help: "1 while this replica leads." }, (set) =>
    set({}, state.leading() ? 1 : 0),
  );
}

function writeObserver({ metrics, log, events }: Observed): GeneratorObserver["generator"] {
  const writes = metrics.counter({
    name: "generator_writes_total",
    help: "Steps of the generator that changed an object, by what was done.",
    labels: { step: WRITES },
  });
  const failures = metrics.counter({
    name: "generator_failures_total",
    help: "Steps of the generator that failed and are tried again, by why.",
    labels: { reason: FAILURES },
  });
  const problems = metrics.counter({
    name: "generator_problems_total",
    help: "Sources that ask for protection and can't have it as they are, by why; told once for each.",
    labels: { problem: PROBLEMS },
  });
  return (event) => {
    switch (event.kind) {
      case "kindServed":
      case "kindGone":
        log.info({ ...event.served }, event.kind === "kindServed" ? "A kind is installed" : "A kind is not installed");
        return;
      case "ignored":
      case "unresolved":
      case "namespaceTerminating":
        problems.inc({ problem: event.kind });
        log.warn({ source: event.source, why: event.why }, "A source can't be protected as it asks");
        events.record({
          regarding: event.about,
          type: "Warning",
          reason: event.kind === "unresolved" ? "BudgetUnresolved" : "NotProtected",
          message: event.why,
        });
        return;
      case "failed": {
        const reason = FAILURES.find((known) => known === event.tag);
        if (reason !== undefined) failures.inc({ reason });
        // A conflict is how two writers of one object find out about each other.
        log[event.tag === "conflict" ? "debug" : "warn"](
          { source: event.source, error: event.error },
          "A step failed and is tried again",
        );
        return;
      }
      case "orphaned":
        log.warn(
          { source: event.source, protector: event.protector },
          "A source vanished without a release; its protector stays in force",
        );
        events.record(orphanNote(event));
        return;
      case "kept":
        log.warn(
          { source: event.source, protector: event.protector, why: event.why },
          "A protector was deleted without a release and cannot be made anew now; it stays in force",
        );
        events.record(keptNote(event));
        return;
      default: {
        const { kind, ...fields } = event;
        writes.inc({ step: kind });
        log.info({ step: kind, ...fields }, "A step was done");
      }
    }
  };
}

function keptNote(event: Extract<GeneratorEvent, { kind: "kept" }>): Parameters<EventRecorder["record"]>[0] {
  const [, namespace = ""] = event.source.split("/");
  return {
    regarding: { apiVersion: `${GROUP}/${VERSION}`, kind: KIND, namespace, name: event.protector, uid: event.uid },
    type: "Warning",
    reason: "DeletedWithoutRelease",
    message: `deleted without having been released, and it can't be created anew now: it stays in force. ${event.why}`,
  };
}

function orphanNote(event: Extract<GeneratorEvent, { kind: "orphaned" }>): Parameters<EventRecorder["record"]>[0] {
  const [, namespace = ""] = event.source.split("/");
  return {
    regarding: {
      apiVersion: `${GROUP}/${VERSION}`,
      kind: KIND,
      namespace,
      name: event.protector,
      uid: event.uid,
    },
    type: "Warning",
    reason: "SourceVanished",
    message: `${event.source} is gone without having been released; its pods stay protected. Annotate the protector with ${GROUP}/released to let them go.`,
  };
}

function watchObserver({ metrics, log }: Observed): (source: string, event: WatchEvent) => void {
  const resource = { max: MAX_RESOURCES };
  const lists = metrics.counter({
    name: "generator_lists_total",
    help: "Complete lists, of which all but the first of each resource are relists.",
    labels: { resource },
  });
  const failures = metrics.counter({
    name: "generator_watch_failures_total",
    help: "Lists, watches and confirmations that failed and are tried again.",
    labels: { resource },
  });
  return (source, event) => {
    if (event.kind === "listed") lists.inc({ resource: source });
    if (event.kind === "failed") {
      failures.inc({ resource: source });
      log.warn(
        { resource: source, during: event.during, tag: event.tag, error: event.error },
        "Watching failed and is tried again",
      );
    }
    if (event.kind === "unparsable")
      log.error({ resource: source, key: event.key, error: event.error }, "An object cannot be read");
    if (event.kind === "handlerFailed")
      log.error({ resource: source, error: event.error }, "A handler failed because of a defect");
    if (event.kind === "versionWentBack")
      log.error({ resource: source, from: event.from, to: event.to }, "The cluster went back in time");
  };
}

function queueObserver(metrics: Metrics): (event: QueueEvent) => void {
  const depth = metrics.gauge({ name: "generator_queue_depth", help: "Sources that wait for a worker." });
  const waited = metrics.histogram({
    name: "generator_queue_wait_seconds",
    help: "How long a source waited for a worker.",
    buckets: [0.001, 0.01, 0.1, 1, 10, 60],
  });
  const worked = metrics.histogram({
    name: "generator_reconcile_seconds",
    help: "How long the work on one source took.",
    buckets: [0.001, 0.005, 0.025, 0.1, 0.5, 2, 10],
  });
  return (event) => {
    if (event.kind === "queued") depth.set({}, event.depth);
    if (event.kind === "taken") {
      depth.set({}, event.depth);
      waited.observe({}, event.waitedMs / 1000);
    }
    if (event.kind === "done") worked.observe({}, event.workedMs / 1000);
  };
}

function leaderObserver({ log }: Observed): (event: LeaderEvent) => void {
  return (event) => {
    const { kind, ...fields } = event;
    if (kind === "failed") log.warn(fields, "A call about the lease failed");
    else log.info({ election: kind, ...fields }, "Leader election");
  };
}
