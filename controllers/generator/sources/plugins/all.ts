/** Every kind of source that the generator reads. One line and one file for each. */

import type { SourcePlugin } from "../protection-source.ts";
import { type SelectionOptions, scope, selection } from "../selection.ts";
import type { PluginContext } from "../workload.ts";
import { daemonSetPlugin } from "./daemon-set.ts";
import { deploymentPlugin } from "./deployment.ts";
import { cronJobPlugin, jobPlugin } from "./job.ts";
import { podDisruptionBudgetPlugin } from "./pod-disruption-budget.ts";
import { podUnavailableBudgetPlugin } from "./pod-unavailable-budget.ts";
import { replicaSetPlugin } from "./replica-set.ts";
import { replicationControllerPlugin } from "./replication-controller.ts";
import { parseScalable, scalablePlugin } from "./scalable.ts";
import { statefulSetPlugin } from "./stateful-set.ts";
import { xPodDisruptionBudgetPlugin } from "./x-pod-disruption-budget.ts";

export interface PluginOptions extends SelectionOptions {
  readonly protectNonZero: boolean;
  /** Names of {@link KINDS}; all when absent. */
  readonly kinds?: readonly string[];
  /** Custom resources as `group/version/resource`. */
  readonly scalable?: readonly string[];
}

type Make = (context: PluginContext) => SourcePlugin;

/** Over whose pods budgets are resolved: they are read wherever a budget is, protected or not. */
const WORKLOADS: Readonly<Record<string, Make>> = {
  deployment: deploymentPlugin,
  statefulset: statefulSetPlugin,
  replicaset: replicaSetPlugin,
  replicationcontroller: replicationControllerPlugin,
};
const OTHERS: Readonly<Record<string, Make>> = { daemonset: daemonSetPlugin, job: jobPlugin, cronjob: cronJobPlugin };
const BUDGETS: Readonly<Record<string, Make>> = {
  poddisruptionbudget: podDisruptionBudgetPlugin,
  podunavailablebudget: podUnavailableBudgetPlugin,
  xpoddisruptionbudget: xPodDisruptionBudgetPlugin,
};

/** What `--kinds` may name. */
export const KINDS: readonly string[] = [
  ...Object.keys(WORKLOADS),
  ...Object.keys(OTHERS),
  ...Object.keys(BUDGETS),
].sort();

/** Throws for a selector or resource that can't be read; the options are checked before. */
export function plugins(options: PluginOptions): readonly SourcePlugin[] {
  const { protectNonZero, kinds = KINDS, scalable = [] } = options;
  const context: PluginContext = { select: selection(options), protectNonZero };
  const readOnly: PluginContext = { select: () => "OutOfScope", protectNonZero };
  const covers = scope(options);
  const hasBudgets = Object.keys(BUDGETS).some((name) => kinds.includes(name));
  const workloads = Object.entries(WORKLOADS).flatMap(([name, make]) => {
    if (kinds.includes(name)) return [{ ...make(context), covers }];
    return hasBudgets ? [{ ...make(readOnly), covers: () => false }] : [];
  });
  const others = [...Object.entries(OTHERS), ...Object.entries(BUDGETS)].flatMap(([name, make]) =>
    kinds.includes(name) ? [{ ...make(context), covers }] : [],
  );
  const custom = scalable.map((text) => {
    const resource = parseScalable(text);
    if (resource === undefined) throw new Error(`not a resource as group/version/resource: ${text}`);
    return { ...scalablePlugin(resource, context), covers };
  });
  return [...workloads, ...others, ...custom];
}
