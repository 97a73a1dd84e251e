import {
  checkLeaderElection,
  kubeconfigOptions,
  leaderElectionOptions,
  observeOptions,
} from "../../shared/runtime/options/common-options.ts";
import { boolean, integer, list, option, text } from "../../shared/runtime/options/option-types.ts";
import { defineOptions, type OptionValues } from "../../shared/runtime/options/options.ts";
import { version } from "../../shared/runtime/version.ts";
import { PROTECT_ANNOTATION, PROTECT_LABEL } from "../../shared/schema/annotations.ts";
import { KINDS } from "./sources/plugins/all.ts";
import { parseScalable } from "./sources/plugins/scalable.ts";
import { parseSelectorText } from "./sources/selector-text.ts";

/** The generator's options (design 7, 11, 12). */
export const generatorOptions = defineOptions({
  name: "podseidon-generator",
  version,
  summary: "Keeps a PodProtector for each workload and disruption budget of a core cluster that asks for protection.",
  options: {
    ...kubeconfigOptions,
    protectSelector: option(
      text("SELECTOR"),
      `${PROTECT_LABEL}=true`,
      `Label selector of the workloads and budgets that are protected; empty for all. The annotation ${PROTECT_ANNOTATION} (true or false) on one of them overrides it.`,
    ),
    kinds: option(
      list("KIND"),
      KINDS,
      "Kinds that are protected. What protects objects of other kinds is left as it is.",
    ),
    scalable: option(
      list("GROUP/VERSION/RESOURCE"),
      [],
      "A custom resource with a scale subresource whose objects are protected like workloads.",
    ),
    namespaces: option(list("NAMESPACE"), [], "The only namespaces that are looked after; all when none is given."),
    excludedNamespaces: option(list("NAMESPACE"), [], "Namespaces that are left alone."),
    protectNonZero: option(
      boolean(),
      true,
      "A workload that is deleted while it still asks for replicas keeps its protection until it is scaled to zero.",
    ),
    concurrency: option(
      integer(1, 256),
      48,
      "How many workloads are worked on at once, with one write each under way.",
    ),
    ...leaderElectionOptions,
    ...observeOptions,
  },
  check: (values) => [
    ...checkLeaderElection(values),
    ...(values.protectSelector !== undefined && parseSelectorText(values.protectSelector) === undefined
      ? ["--protect-selector: expected a label selector such as app=web,tier in (a,b),!legacy"]
      : []),
    ...(values.kinds ?? [])
      .filter((kind) => !KINDS.includes(kind))
      .map((kind) => `--kinds: ${kind} is none of ${KINDS.join(", ")}`),
    ...(values.scalable ?? [])
      .filter((one) => parseScalable(one) === undefined)
      .map((one) => `--scalable: expected group/version/resource such as argoproj.io/v1alpha1/rollouts, not ${one}`),
  ],
});

export type GeneratorFlags = OptionValues<(typeof generatorOptions)["options"]>;
