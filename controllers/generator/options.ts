import {
  checkLeaderElection,
  kubeconfigOptions,
  leaderElectionOptions,
  observeOptions,
} from "../../shared/runtime/common-options.ts";
import { boolean, integer, option, text } from "../../shared/runtime/option-types.ts";
import { defineOptions, type Values } from "../../shared/runtime/options.ts";
import { version } from "../../shared/runtime/version.ts";
import { PROTECT_LABEL } from "../../shared/schema/annotations.ts";
import { parseSelectorText } from "./selector-text.ts";

/** The generator's options (design 7, 11, 12). */
export const generatorOptions = defineOptions({
  name: "podseidon-generator",
  version,
  summary: "Keeps a PodProtector for each workload of a core cluster that asks for protection.",
  options: {
    ...kubeconfigOptions,
    protectSelector: option(
      text("SELECTOR"),
      `${PROTECT_LABEL}=true`,
      "Label selector of the workloads that are protected; empty for all.",
    ),
    protectNonZero: option(
      boolean(),
      true,
      "A workload that is deleted while it still asks for replicas keeps its protection until it is scaled to zero.",
    ),
    concurrency: option(integer(1, 256), 16, "How many workloads are worked on at once."),
    ...leaderElectionOptions,
    ...observeOptions,
  },
  check: (values) => [
    ...checkLeaderElection(values),
    ...(values.protectSelector !== undefined && parseSelectorText(values.protectSelector) === undefined
      ? ["--protect-selector: expected a label selector such as app=web,tier in (a,b),!legacy"]
      : []),
  ],
});

export type GeneratorOptions = Values<(typeof generatorOptions)["options"]>;
