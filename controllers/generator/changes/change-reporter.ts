/** Reports each change of a protector as an Event and a log line, with the writer if the API shows it. */
import type { ApiClient } from "../../../shared/kube/client/api-client.ts";
import type { Clock } from "../../../shared/runtime/clock.ts";
import { namespacedName, type PodProtector } from "../../../shared/schema/podprotector.ts";
import type { GeneratorSinks } from "../observe.ts";
import { CHANGES } from "./change-reasons.ts";

interface ChangeReporterOptions extends Pick<GeneratorSinks, "events" | "log" | "metrics"> {
  readonly api: Pick<ApiClient, "get">;
  readonly clock: Pick<Clock, "nowMs">;
  /** The field manager of this process. */
  readonly ownName: string;
}

/** Concurrent reads of the managers of an object; beyond this, changes are reported without a manager. */
const MAX_QUESTIONS = 8;

/** Loaded with the first change. */
const texts = () => import("./protector-changes.ts");

/**
 * Returns a function that reports the changes between two versions of a protector. The function never throws, and
 * returns before the report is written.
 */
export function changeReporter(options: ChangeReporterOptions) {
  const { clock, events, log, metrics, ownName } = options;
  const counter = metrics.counter({
    name: "generator_protector_changes_total",
    help: "Changes of protectors that were told as Events, by what changed.",
    labels: { change: CHANGES },
  });
  let questions = 0;
  const ask = async (after: PodProtector, field: string): Promise<string | undefined> => {
    if (questions >= MAX_QUESTIONS) return undefined;
    questions += 1;
    const { writerOf } = await texts();
    const by = await writerOf(options.api, after, field);
    questions -= 1;
    return by;
  };
  return (before: PodProtector | undefined, after: PodProtector | undefined): void => {
    const about = after ?? before;
    if (about === undefined) return;
    const nowMs = clock.nowMs();
    void texts().then(({ changesOf, noteOf }) => {
      for (const change of changesOf(before, after, nowMs)) {
        const { reason } = change;
        const tell = (by = change.by): void => {
          const note = noteOf(about, change, by, ownName);
          counter.inc({ change: reason });
          log.info(
            { protector: namespacedName(about.metadata), change: reason, message: note.message },
            "A protector has changed",
          );
          events.record(note);
        };
        if (change.field === undefined || after === undefined) tell();
        else void ask(after, change.field).then(tell);
      }
    });
  };
}
