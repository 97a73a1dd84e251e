import {
  checkLeaderElection,
  kubeconfigOptions,
  leaderElectionOptions,
  observeOptions,
} from "../../shared/runtime/options/common-options.ts";
import { duration, list, option, text } from "../../shared/runtime/options/option-types.ts";
import { defineOptions, type OptionValues } from "../../shared/runtime/options/options.ts";
import { version } from "../../shared/runtime/version.ts";
import { UPDATE_TRIGGER_POD } from "../../shared/schema/annotations.ts";

/** Labels as `--pod-label KEY=VALUE` says them; undefined when one is no label. */
export function parseLabels(pairs: readonly string[]): Readonly<Record<string, string>> | undefined {
  const labels: Record<string, string> = {};
  for (const pair of pairs) {
    const match = /^([A-Za-z0-9][A-Za-z0-9._/-]*)=([A-Za-z0-9._-]*)$/.exec(pair);
    if (match === null) return undefined;
    labels[match[1] ?? ""] = match[2] ?? "";
  }
  return labels;
}

/** The update trigger's options (design 3, 12). */
export const triggerOptions = defineOptions({
  name: "podseidon-update-trigger",
  version,
  summary: "Patches one dummy pod of a cell at an interval, so that a quiet watch stream moves.",
  options: {
    ...kubeconfigOptions,
    namespace: option(
      text("NAMESPACE"),
      "",
      "Namespace of the dummy pod; it must be part of the cell. Empty is the namespace of the kubeconfig or of the process.",
    ),
    interval: option(duration({ minMs: 50, maxMs: 3_600_000 }), 5_000, "Pause between two patches, with jitter."),
    podName: option(text("NAME"), UPDATE_TRIGGER_POD, "Name of the dummy pod."),
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

export type UpdateTriggerFlags = OptionValues<(typeof triggerOptions)["options"]>;
