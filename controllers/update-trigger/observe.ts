/** The update trigger's metrics and log lines. */
import { counted, observeEvents } from "../../shared/observe/event-table.ts";
import { gaugeOf } from "../../shared/observe/gauge.ts";
import type { Log } from "../../shared/observe/log.ts";
import type { Metrics } from "../../shared/observe/metrics.ts";
import type { Clock } from "../../shared/runtime/clock.ts";
import { TRIGGER_ACTIONS, type TriggerEvent, type UpdateTrigger } from "./trigger.ts";

export function observeTrigger(metrics: Metrics, log: Log): (event: TriggerEvent) => void {
  const updates = metrics.counter({
    name: "update_trigger_updates_total",
    help: "Patches of the dummy pod and what they needed first, by outcome.",
    labels: { action: TRIGGER_ACTIONS, outcome: ["done", "failed"] },
  });
  return observeEvents<TriggerEvent>(
    { log },
    {
      done: {
        line: ({ action }) =>
          action === "update" ? ["debug", "Patched the dummy pod"] : ["info", "The dummy pod is there"],
        fields: ({ action, counter }) => (action === "update" ? { counter } : { action, counter }),
        count: ({ action }) => updates.inc({ action, outcome: "done" }),
      },
      failed: {
        line: ({ action }) =>
          action === "complete"
            ? ["info", "The dummy pod stays Pending: the permission to write its status is missing"]
            : ["warn", "The dummy pod could not be patched; nothing but a quiet watch stream suffers"],
        count: ({ action }) => updates.inc({ action, outcome: "failed" }),
      },
      wentBack: {
        level: "warn",
        message: "The counter went back: the cell's etcd was restored",
        count: counted(metrics, {
          name: "update_trigger_restores_total",
          help: "Times that the stored counter went back: the cell's etcd was restored to an older state.",
          of: () => ({}),
        }),
      },
      schedulable: { level: "warn", message: "A pod of the dummy's name is there which a scheduler may take" },
    },
  );
}

export function triggerMetrics(metrics: Metrics, trigger: Pick<UpdateTrigger, "lastDoneMs">, clock: Clock): void {
  gaugeOf(metrics, "update_trigger_age_seconds", "Time since the last patch; absent on a standby.", () =>
    trigger.lastDoneMs === undefined ? undefined : (clock.monotonicMs() - trigger.lastDoneMs) / 1000,
  );
}

/** The `onResult` of the bookmark probe. */
export function observeBookmarks(metrics: Metrics, log: Log): (sends: boolean | undefined) => void {
  const needed = metrics.gauge({
    name: "update_trigger_needed",
    help: "0 when a quiet stream moves without the trigger: the apiserver's bookmarks carry the version of a list.",
  });
  needed.set({}, 1);
  return (sends) => {
    needed.set({}, sends === true ? 0 : 1);
    if (sends === undefined) log.debug({}, "Whether the apiserver sends bookmarks is not known");
    else if (!sends)
      log.info({}, "The apiserver sends no bookmarks with the version of a list: quiet streams need this trigger");
    else {
      log.info({}, "The apiserver's bookmarks move positions without this trigger, which now only reveals restores");
    }
  };
}
