/** The generator as a controller of its core cluster, wired. `generator.ts` says in which order to read this folder. */
import { EventRecorder } from "../../shared/observe/event-recorder.ts";
import { observeKubernetesEvents } from "../../shared/observe/process-observer.ts";
import { commandLine } from "../../shared/runtime/options/command-line.ts";
import { GENERATOR_LEASE } from "../../shared/schema/annotations.ts";
import type { Controller, ControllerContext, ControllerParts } from "../run-controller.ts";
import { Generator } from "./generator.ts";
import { generatorObserver, leaderObserver, stateMetrics } from "./observe.ts";
import { type GeneratorFlags, generatorOptions } from "./options.ts";
import { plugins } from "./sources/plugins/all.ts";

const LAST_EVENTS_MS = 2_000;
/** For the Lease, Kubernetes Events and quorum reads, beside one connection for each worker. */
const OTHER_CALLS = 4;

export const generatorController: Controller<GeneratorFlags> = {
  name: generatorOptions.name,
  flags: () => commandLine(generatorOptions),
  graceMs: 20_000,
  election: (flags) => ({ ...flags, lease: GENERATOR_LEASE }),
  requestSockets: ({ concurrency }) => concurrency + OTHER_CALLS,
  build,
};

function build(context: ControllerContext<GeneratorFlags>): ControllerParts {
  const { flags, ports, log, metrics, transport, namespace, mayWrite } = context;
  const onOutcome = observeKubernetesEvents(metrics);
  const events = new EventRecorder({ transport, ports, component: generatorOptions.name, onOutcome });
  const generator = new Generator({
    ...{ transport, ports, mayWrite },
    plugins: plugins(flags),
    concurrency: flags.concurrency,
    registerNamespace: namespace,
    observer: generatorObserver({ metrics, log, events }),
  });
  stateMetrics(metrics, generator);
  return {
    lead: (signal) => generator.lead(signal),
    leaderObserver: leaderObserver(log),
    parts: [
      { name: "events", stop: () => events.stop(LAST_EVENTS_MS) },
      { name: "generator", ready: () => generator.problem() },
    ],
  };
}
