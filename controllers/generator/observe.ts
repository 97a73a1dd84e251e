/** The generator's metrics, log lines and Kubernetes Events. */
import { API_FAILURES } from "../../shared/kube/client/api-result.ts";
import type { ReflectorEvent } from "../../shared/kube/informer/reflector-options.ts";
import type { EventNote, EventRecorder } from "../../shared/observe/event-recorder.ts";
import { counted, type EventRow, limitLines, observeEvents } from "../../shared/observe/event-table.ts";
import { gaugeOf } from "../../shared/observe/gauge.ts";
import type { Log } from "../../shared/observe/log.ts";
import type { Metrics } from "../../shared/observe/metrics.ts";
import type { Clock } from "../../shared/runtime/clock.ts";
import type { QueueEvent } from "../../shared/runtime/work-queue.ts";
import { ADOPTED, KIND, PROTECT_ANNOTATION, PROTECT_LABEL } from "../../shared/schema/annotations.ts";
import type { Generator, GeneratorObserver } from "./generator.ts";
import { type GeneratorEvent, PROBLEMS, PROTECTOR_KIND, type Problem } from "./protectors/events.ts";
import { DELETION_HELD } from "./protectors/source-condition.ts";

const STEPS = [
  "held",
  "letGo",
  "created",
  "updated",
  "restored",
  "replaced",
  "released",
  "cellsRemoved",
  "cellsHeld",
  "noted",
  "statusWritten",
  "registerDropped",
] as const satisfies readonly GeneratorEvent["kind"][];
const REASONS: Partial<Record<Problem, string>> = { unresolved: "BudgetUnresolved", undone: "RepairUndone" };
/**
 * A core that refuses or does not answer fails each try of each source. What a source lacks is told beside it. So does
 * a namespace that never ends with each deleted protector.
 */
const FAILURE_EVERY_MS = 10_000;
const STATUS_LEFT = { level: "info", message: "The status of a budget is another manager's and is left" } as const;
/** Kinds of sources that are watched, and protectors. */
const MAX_RESOURCES = 32;

export interface GeneratorSinks {
  readonly metrics: Metrics;
  readonly log: Log;
  readonly clock: Pick<Clock, "monotonicMs">;
  readonly events: Pick<EventRecorder, "record">;
}

export function generatorObserver({ metrics, log, clock, events }: GeneratorSinks): GeneratorObserver {
  const watch = watchObserver(metrics, log);
  return {
    generator: eventObserver({ metrics, log, clock, events }),
    watch: (resource, event) => watch({ ...event, resource }),
    queue: queueObserver(metrics, log),
  };
}

/** Declares the gauges of a generator. */
export function stateMetrics(
  metrics: Metrics,
  generator: Pick<Generator, "lostSources" | "problems" | "scalables" | "isLeading">,
): void {
  gaugeOf(
    metrics,
    "generator_orphaned_sources",
    "Sources that vanished without a release; their protectors stay in force.",
    () => generator.lostSources().length,
  );
  metrics.gaugeFrom(
    {
      name: "generator_sources_in_trouble",
      help: "Sources that ask for protection and can't have it as they are, by why; zero on a standby.",
      labels: { problem: PROBLEMS },
    },
    (set) => {
      for (const problem of PROBLEMS) set({ problem }, generator.problems(problem));
    },
  );
  metrics.gaugeFrom(
    {
      name: "generator_scalable_missing",
      help: "1 for a resource of --scalable that the core does not serve as needed, else 0; absent on a standby.",
      labels: { resource: { max: MAX_RESOURCES } },
    },
    (set) => {
      for (const [resource, isMissing] of generator.scalables()) set({ resource }, Number(isMissing));
    },
  );
  gaugeOf(metrics, "generator_leader", "1 while this replica leads.", () => generator.isLeading);
}

const KIND_GONE =
  "A kind is not served in this version, not namespaced, or without the scale subresource that it needs";

function eventObserver({ metrics, log, clock, events }: GeneratorSinks): (event: GeneratorEvent) => void {
  const step: EventRow<GeneratorEvent & { readonly kind: (typeof STEPS)[number] }> = {
    level: "info",
    message: "A step was done",
    fields: ({ kind, ...fields }) => ({ step: kind, ...fields }),
    count: counted(metrics, {
      name: "generator_writes_total",
      help: "Steps of the generator that changed an object, by what was done.",
      labels: { step: STEPS },
      of: ({ kind }) => ({ step: kind }),
    }),
  };
  const problem: EventRow<GeneratorEvent & { readonly kind: Problem }> = {
    level: "warn",
    message: "A source can't be protected as it asks",
    fields: ({ source, why }) => ({ source, why }),
    count: counted(metrics, {
      name: "generator_problems_total",
      help: "Sources that ask for protection and can't have it, by why; told again every half hour.",
      labels: { problem: PROBLEMS },
      of: ({ kind }) => ({ problem: kind }),
    }),
    note: ({ kind, about, why }) => ({
      regarding: about,
      type: "Warning",
      reason: REASONS[kind] ?? "NotProtected",
      message: why,
    }),
  };
  const told = (message: string, reason: string, text: (source: string) => string): EventRow<EventAboutBoth> => ({
    level: "warn",
    message,
    // One line for both Events.
    fields: ({ source, protector, about }) => (about.kind === KIND ? undefined : { source, protector }),
    note: ({ source, about }) => ({ regarding: about, type: "Warning", reason, message: text(source) }),
  });
  const failures = metrics.counter({
    name: "generator_failures_total",
    help: "Steps of the generator that failed and are tried again, by why.",
    labels: { reason: API_FAILURES },
  });
  const limited = limitLines(clock, FAILURE_EVERY_MS);
  return observeEvents<GeneratorEvent>(
    { log, events },
    {
      ...{ held: step, letGo: step, created: step, updated: step, restored: step, replaced: step, released: step },
      ...{ cellsRemoved: step, cellsHeld: step, noted: step, statusWritten: step, registerDropped: step },
      ...{ ignored: problem, unresolved: problem, namespaceTerminating: problem, refused: problem, undone: problem },
      registerBlocked: {
        level: "warn",
        message:
          "The release register grows: these cells do not acknowledge it. `remove-cell` forgets one that is gone",
        fields: ({ cells }) => ({ cells }),
        count: counted(metrics, {
          name: "generator_register_blocked_total",
          help: "Times that the release register was too long and cells had not acknowledged its oldest part.",
          of: () => ({}),
        }),
      },
      statusLeft: { ...STATUS_LEFT, fields: ({ source, manager }) => ({ source, manager }) },
      kindServed: { level: "info", message: "A kind is installed", fields: ({ served }) => ({ ...served }) },
      kindGone: { level: "warn", message: KIND_GONE, fields: ({ served }) => ({ ...served }) },
      failed: {
        // Conflicts are normal where two clients write the same object.
        line: ({ tag }) => [tag === "conflict" ? "debug" : "warn", "A step failed and is tried again"],
        fields: ({ source, tag, error }) => limited(tag, { source, error }),
        count({ tag }) {
          const reason = API_FAILURES.find((known) => known === tag);
          if (reason !== undefined) failures.inc({ reason });
        },
      },
      sourceVanished: {
        level: "warn",
        message: "A source vanished without a release; its protector stays in force",
        fields: ({ source, protector }) => ({ source, protector }),
        note: (event) => protectorNote(event, "SourceVanished", vanishedText(event)),
      },
      adopted: told("A source came back without asking for protection; it stays protected", "Adopted", adoptedText),
      deletionHeld: told("A deletion waits, because the source asks for replicas", "DeletionHeld", () => DELETION_HELD),
      kept: {
        level: "warn",
        message: "A protector was deleted without a release and can't be created again now; it stays in force",
        fields: ({ source, protector, why }) => limited("kept", { source, protector, why }),
        note: (event) => protectorNote(event, "DeletedWithoutRelease", keptText(event.why)),
      },
    },
  );
}

type EventAboutBoth = Extract<GeneratorEvent, { readonly protector: string; readonly about: object }>;

function adoptedText(source: string): string {
  return (
    `${source} vanished and came back without asking for protection: it stays protected, by the annotation ` +
    `${PROTECT_ANNOTATION}=${ADOPTED}. Write what asks for protection (--protect-selector, by default the label ` +
    `${PROTECT_LABEL}=true) into its manifest, or the label ${PROTECT_LABEL}=false.`
  );
}

function vanishedText({ source, protector }: NamedProtector): string {
  const [, namespace = ""] = source.split("/");
  return (
    `${source} is gone without a release; its pods stay protected. Create it again, or give it up by ` +
    `kubectl podseidon release ${protector} -n ${namespace}`
  );
}

function keptText(why: string): string {
  return `deleted without a release, and it can't be created again now: it stays in force. ${why}`;
}

interface NamedProtector {
  readonly source: string;
  readonly protector: string;
  readonly uid: string;
}

function protectorNote({ source, protector, uid }: NamedProtector, reason: string, message: string): EventNote {
  const [, namespace = ""] = source.split("/");
  const regarding = { ...PROTECTOR_KIND, namespace, name: protector, uid };
  return { regarding, type: "Warning", reason, message };
}

function watchObserver(metrics: Metrics, log: Log): (event: ReflectorEvent & { readonly resource: string }) => void {
  const labels = { resource: { max: MAX_RESOURCES } };
  return observeEvents<ReflectorEvent & { readonly resource: string }>(
    { log },
    {
      ...{ watching: {}, ended: {}, confirmed: {} },
      listed: {
        count: counted(metrics, {
          name: "generator_lists_total",
          help: "Complete lists, of which all but the first of each resource are relists.",
          labels,
          of: ({ resource }) => ({ resource }),
        }),
      },
      failed: {
        level: "warn",
        message: "Watching failed and is tried again",
        fields: ({ resource, during, tag, error }) => ({ resource, during, tag, error }),
        count: counted(metrics, {
          name: "generator_watch_failures_total",
          help: "Lists, watches and confirmations that failed and are tried again.",
          labels,
          of: ({ resource }) => ({ resource }),
        }),
      },
      unparsable: { level: "error", message: "An object cannot be read" },
      handlerFailed: {
        level: "error",
        message: "A handler failed because of a defect",
        count: counted(metrics, {
          name: "generator_handler_failures_total",
          help: "Handlers of watch events that threw: defects of this program.",
          of: () => ({}),
        }),
      },
      versionWentBack: { level: "error", message: "The cluster went back in time" },
    },
  );
}

function queueObserver(metrics: Metrics, log: Log): (event: QueueEvent) => void {
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
  return observeEvents<QueueEvent>(
    { log },
    {
      ...{ merged: {}, retried: {}, refused: {} },
      queued: { count: (event) => depth.set({}, event.depth) },
      taken: {
        count(event) {
          depth.set({}, event.depth);
          waited.observe({}, event.waitedMs / 1000);
        },
      },
      done: { count: ({ workedMs }) => worked.observe({}, workedMs / 1000) },
    },
  );
}
