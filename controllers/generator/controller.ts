/** The generator as a controller of its core cluster: its options, and how it is wired. Read `generator.ts` next. */

import { parseSelectorText } from "../../shared/decide/availability/selector-text.ts";
import { ApiClient } from "../../shared/kube/client/api-client.ts";
import { EventRecorder } from "../../shared/observe/event-recorder.ts";
import { observeKubernetesEvents } from "../../shared/observe/process-observer.ts";
import { commandLine } from "../../shared/runtime/options/command-line.ts";
import { observeOptions } from "../../shared/runtime/options/common-options.ts";
import {
  checkLeaderElection,
  kubeconfigOptions,
  leaderElectionOptions,
} from "../../shared/runtime/options/controller-options.ts";
import {
  boolean,
  choice,
  duration,
  integer,
  list,
  namedPaths,
  option,
  text,
} from "../../shared/runtime/options/option-types.ts";
import { defineOptions, type OptionValues } from "../../shared/runtime/options/options.ts";
import { version } from "../../shared/runtime/version.ts";
import {
  ENFORCEMENT_LABEL,
  GENERATOR_LEASE,
  PROTECT_ANNOTATION,
  PROTECT_LABEL,
} from "../../shared/schema/annotations.ts";
import { ENFORCEMENTS } from "../../shared/schema/podprotector.ts";
import type { Controller, ControllerContext, ControllerParts } from "../run-controller.ts";
import { changeReporter } from "./changes/change-reporter.ts";
import type { BudgetMerger } from "./cluster-budgets/merger.ts";
import { Generator } from "./generator.ts";
import { generatorObserver, stateMetrics } from "./observe.ts";
import { coveredNamespaces, KINDS, plugins } from "./sources/plugins.ts";
import { readScalables, SCALABLE_SEPARATOR } from "./sources/scalable.ts";

const LAST_EVENTS_MS = 2_000;
/** Lists and watches of budgets. */
const BUDGET_CALLS = 4;

export const generatorOptions = defineOptions({
  name: "podseidon-generator",
  version,
  summary: "Keeps a PodProtector for each workload and disruption budget of a core cluster that asks for protection.",
  options: {
    ...kubeconfigOptions,
    protectSelector: option(
      text("SELECTOR"),
      `${PROTECT_LABEL}=true`,
      "Label selector of the workloads and budgets that are protected; empty for all. The label " +
        `${PROTECT_LABEL}=false overrides it, and the annotation ${PROTECT_ANNOTATION} (true or false) overrides both.`,
    ),
    kinds: option(
      list("KIND"),
      KINDS,
      "Kinds that are protected. Protectors of objects of other kinds stay unchanged.",
    ),
    scalable: option(
      list("GROUP/VERSION/RESOURCE[?SETTINGS]", SCALABLE_SEPARATOR),
      [],
      "A custom resource whose objects are protected like workloads: by its scale subresource, or by the paths of " +
        "the settings replicas, selector, maxUnavailable and name (docs/generator.md#custom-resources).",
    ),
    enforcement: option(
      choice(ENFORCEMENTS),
      "Enforce",
      "spec.enforcement of the protectors: Enforce denies, Warn allows with a warning, Off does not protect. " +
        `The label ${ENFORCEMENT_LABEL} of a namespace overrides it, ` +
        "and the annotation of that name on a workload or budget overrides both.",
    ),
    namespaces: option(list("NAMESPACE"), [], "The only namespaces that are looked after; all when none is given."),
    excludedNamespaces: option(list("NAMESPACE"), [], "Namespaces that are left alone."),
    protectNonZero: option(
      boolean(),
      true,
      "A workload that is deleted while it still asks for replicas keeps its protection until it is scaled to zero. " +
        "When false, leave out the policy that refuses such deletions (components/without-workload-deletions).",
    ),
    budgetCluster: option(
      namedPaths("CELL=KUBECONFIG"),
      [],
      "A worker cluster whose XPodDisruptionBudgets count, by the id of its cell and a kubeconfig that may list and " +
        "watch them. Budgets of one namespace and name become one in the core, of which the strictest counts.",
    ),
    budgetRemovalDelay: option(
      duration({ minMs: 1000 }),
      600_000,
      "How long a budget counts that its --budget-cluster does not have any more.",
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
      .map((kind) => `--kinds: ${kind} is not one of ${KINDS.join(", ")}`),
    ...readScalables(values.scalable ?? []).problems.map((problem) => `--scalable: ${problem}`),
  ],
});

type GeneratorFlags = OptionValues<(typeof generatorOptions)["options"]>;

export const generatorController: Controller<GeneratorFlags> = {
  name: generatorOptions.name,
  flags: () => commandLine(generatorOptions),
  graceMs: 20_000,
  election: (flags) => ({ ...flags, lease: GENERATOR_LEASE }),
  concurrency: (flags) => flags.concurrency,
  build,
};

async function build(context: ControllerContext<GeneratorFlags>): Promise<ControllerParts> {
  const { flags, ports, log, metrics, transport, namespace, mayWrite } = context;
  const onOutcome = observeKubernetesEvents(metrics);
  const events = new EventRecorder({ transport, ports, component: generatorOptions.name, onOutcome });
  const generator = new Generator({
    ...{ transport, ports, mayWrite },
    plugins: plugins(flags),
    concurrency: flags.concurrency,
    enforcement: flags.enforcement,
    registerNamespace: namespace,
    observer: {
      ...generatorObserver({ metrics, log, clock: ports.clock, events }),
      protector: changeReporter({
        ...{ clock: ports.clock, events, log, metrics },
        api: new ApiClient(transport),
        ownName: generatorOptions.name,
      }),
    },
  });
  stateMetrics(metrics, generator);
  const merger = await budgetMerger(context, events);
  return {
    leaseSeen: (version) => generator.leaseSeen(version),
    lead: async (signal) => void (await Promise.all([generator.lead(signal), merger?.lead(signal)])),
    parts: [
      { name: "events", stop: () => events.stop(LAST_EVENTS_MS) },
      { name: "generator", ready: () => generator.problem() },
    ],
  };
}

/** Creates the merger for budgets of worker clusters, if configured. */
async function budgetMerger(
  context: ControllerContext<GeneratorFlags>,
  events: EventRecorder,
): Promise<BudgetMerger | undefined> {
  const { flags, ports, log, metrics, transport, mayWrite, connect } = context;
  if (flags.budgetCluster.length === 0) return undefined;
  const { BudgetMerger } = await import("./cluster-budgets/merger.ts");
  const { observeMerger } = await import("./cluster-budgets/observe.ts");
  const clusters = await Promise.all(
    flags.budgetCluster.map(async ({ name, path = "" }) => ({
      name,
      transport: await connect(name, `--budget-cluster ${name}`, path, BUDGET_CALLS),
    })),
  );
  const observer = observeMerger({ metrics, log, clock: ports.clock, events }, () => merger);
  const merger: BudgetMerger = new BudgetMerger({
    ...{ transport, clusters, ports, mayWrite },
    keepMs: flags.budgetRemovalDelay,
    covers: coveredNamespaces(flags),
    ...observer,
  });
  return merger;
}
