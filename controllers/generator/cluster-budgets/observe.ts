/** Metrics, log lines and Kubernetes Events about the budgets of worker clusters. */
import type { ReflectorEvent } from "../../../shared/kube/informer/reflector-options.ts";
import { observeEvents } from "../../../shared/observe/event-table.ts";
import { observeListWatch } from "../../../shared/observe/watch-observer.ts";
import type { GeneratorSinks } from "../observe.ts";
import {
  type BudgetMerger,
  type BudgetMergerOptions,
  GROUP_VERSION,
  KIND,
  MERGE_TROUBLES,
  type MergeEvent,
} from "./merger.ts";

const STEPS = ["created", "updated", "deleted"] as const;
const CLUSTERS = { max: 200 };

export function observeMerger(
  { metrics, log, clock, events }: GeneratorSinks,
  merger: () => Pick<BudgetMerger, "sizes" | "trouble">,
): Pick<BudgetMergerOptions, "onEvent" | "onWatch"> {
  const watches = observeListWatch({ metrics, log, clock, maxSources: CLUSTERS.max });
  const observers = new Map<string, (event: ReflectorEvent) => void>();
  const observerOf = (resource: string): ((event: ReflectorEvent) => void) => {
    const observer = observers.get(resource) ?? watches.observe(resource);
    observers.set(resource, observer);
    return observer;
  };
  const writes = metrics.counter({
    name: "generator_merged_budget_writes_total",
    help: "Budgets of the core that stand for those of worker clusters, by what was done with one.",
    labels: { step: STEPS },
  });
  const failures = metrics.counter({
    name: "generator_merged_budget_failures_total",
    help: "Writes of such budgets that failed and are tried again.",
  });
  metrics.gaugeFrom(
    {
      name: "generator_cluster_budgets",
      help: "Budgets of a worker cluster (--budget-cluster); absent while they are not known.",
      labels: { cluster: CLUSTERS },
    },
    (set) => {
      for (const [cluster, size] of merger().sizes()) if (size !== undefined) set({ cluster }, size);
    },
  );
  metrics.gaugeFrom(
    {
      name: "generator_cluster_budgets_in_trouble",
      help:
        "Budgets of worker clusters that don't protect as they ask: the core does not take them (notWritten), or " +
        "they can't be read (unreadable); zero on a standby.",
      labels: { problem: MERGE_TROUBLES },
    },
    (set) => {
      for (const problem of MERGE_TROUBLES) set({ problem }, merger().trouble[problem]);
    },
  );
  const onEvent = observeEvents<MergeEvent>(
    { log, events },
    {
      merged: {
        level: "info",
        message: "A budget of worker clusters was written to the core",
        count: ({ step }) => writes.inc({ step }),
      },
      mergeFailed: {
        level: "warn",
        message: "A budget of worker clusters could not be written to the core",
        count: () => failures.inc({}),
        // `kubectl podseidon doctor` reads it, as of a source that is refused. Without its namespace there is no Event.
        note({ budget, error }) {
          const [namespace = "", name = ""] = budget.split("/");
          return {
            regarding: { apiVersion: GROUP_VERSION, kind: KIND, namespace, name },
            ...{ type: "Warning", reason: "NotProtected" },
            message: `worker clusters have this budget, and the core does not take it: ${error.message}`,
          };
        },
      },
    },
  );
  return { onEvent, onWatch: (resource, event) => observerOf(resource)(event) };
}
