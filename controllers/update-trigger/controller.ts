/**
 * The update trigger as a controller of one cell: its options, and how it is wired. The trigger patches a dummy pod at
 * an interval, so that a watch stream without other changes advances (`trigger.ts`), and finds out whether the cell
 * needs these patches (`bookmarks.ts`).
 */
import { ApiClient } from "../../shared/kube/client/api-client.ts";
import { commandLine } from "../../shared/runtime/options/command-line.ts";
import { observeOptions } from "../../shared/runtime/options/common-options.ts";
import {
  checkLeaderElection,
  kubeconfigOptions,
  leaderElectionOptions,
} from "../../shared/runtime/options/controller-options.ts";
import { duration, list, option, text } from "../../shared/runtime/options/option-types.ts";
import { defineOptions, type OptionValues } from "../../shared/runtime/options/options.ts";
import { version } from "../../shared/runtime/version.ts";
import { UPDATE_TRIGGER_POD } from "../../shared/schema/annotations.ts";
import type { Controller, ControllerContext, ControllerParts } from "../run-controller.ts";
import { probeBookmarks } from "./bookmarks.ts";
import { observeBookmarks, observeTrigger, triggerMetrics } from "./observe.ts";
import { UpdateTrigger } from "./trigger.ts";

export const updateTriggerOptions = defineOptions({
  name: "podseidon-update-trigger",
  version,
  summary: "Patches one dummy pod of a cell at an interval, so that a quiet watch stream moves.",
  options: {
    ...kubeconfigOptions,
    namespace: option(
      text("NAMESPACE"),
      "",
      "Namespace of the dummy pod; it must be part of the cell. Empty is " +
        "the namespace of the kubeconfig or of the process.",
    ),
    interval: option(duration({ minMs: 50, maxMs: 3_600_000 }), 5_000, "Pause between two patches, with jitter."),
    podName: option(
      text("NAME"),
      UPDATE_TRIGGER_POD,
      "Name of the dummy pod. Aggregators read the counter of a pod of the default name alone: with another one, a " +
        "restore of the cell shows only in versions and lists.",
    ),
    podLabel: option(
      list("KEY=VALUE"),
      [],
      "Labels of the dummy pod, where the cell is a label selector that it has to match.",
    ),
    ...leaderElectionOptions,
    ...observeOptions,
  },
  check: (values) => [
    ...checkLeaderElection(values),
    ...(values.podLabel !== undefined && parseLabels(values.podLabel) === undefined
      ? ["--pod-label: expected KEY=VALUE"]
      : []),
  ],
});

type UpdateTriggerFlags = OptionValues<(typeof updateTriggerOptions)["options"]>;

/** The labels of `--pod-label KEY=VALUE`; undefined when one of them is unreadable. */
function parseLabels(pairs: readonly string[]): Readonly<Record<string, string>> | undefined {
  const labels: Record<string, string> = {};
  for (const pair of pairs) {
    const match = /^([A-Za-z0-9][A-Za-z0-9._/-]*)=([A-Za-z0-9._-]*)$/.exec(pair);
    if (match === null) return undefined;
    labels[match[1] ?? ""] = match[2] ?? "";
  }
  return labels;
}

export const updateTriggerController: Controller<UpdateTriggerFlags> = {
  name: updateTriggerOptions.name,
  flags: () => commandLine(updateTriggerOptions),
  graceMs: 10_000,
  election: (flags) => ({ ...flags, lease: updateTriggerOptions.name }),
  build,
};

function build(context: ControllerContext<UpdateTriggerFlags>): ControllerParts {
  const { flags, ports, log, metrics, cluster, transport } = context;
  const namespace = flags.namespace === "" ? (cluster.namespace ?? "default") : flags.namespace;
  const trigger = new UpdateTrigger({
    ...{ ports, namespace },
    client: new ApiClient(transport),
    name: flags.podName,
    labels: parseLabels(flags.podLabel) ?? {},
    intervalMs: flags.interval,
    onEvent: observeTrigger(metrics, log),
  });
  triggerMetrics(metrics, trigger, ports.clock);
  const onResult = observeBookmarks(metrics, log);
  const probe = { transport, ports, namespace, podName: flags.podName, onResult };
  return {
    lead: async (signal) => {
      await Promise.all([trigger.run(signal), probeBookmarks(probe, signal)]);
    },
  };
}
