/** The eviction retry as a controller of one cluster: its options and wiring. Read `eviction-retrier.ts` next. */
import { ApiClient } from "../../shared/kube/client/api-client.ts";
import { Reflector } from "../../shared/kube/informer/reflector.ts";
import { EventRecorder } from "../../shared/observe/event-recorder.ts";
import { observeKubernetesEvents } from "../../shared/observe/process-observer.ts";
import { observeReconciles } from "../../shared/observe/reconcile-observer.ts";
import { observeListWatch } from "../../shared/observe/watch-observer.ts";
import { commandLine } from "../../shared/runtime/options/command-line.ts";
import { observeOptions } from "../../shared/runtime/options/common-options.ts";
import {
  checkLeaderElection,
  kubeconfigOptions,
  leaderElectionOptions,
} from "../../shared/runtime/options/controller-options.ts";
import { duration, option } from "../../shared/runtime/options/option-types.ts";
import { defineOptions, type OptionValues } from "../../shared/runtime/options/options.ts";
import { version } from "../../shared/runtime/version.ts";
import { parseTaintedNode, type TaintedNode } from "../../shared/schema/taints.ts";
import type { Controller, ControllerContext, ControllerParts } from "../run-controller.ts";
import { EvictionRetrier } from "./eviction-retrier.ts";
import { evictionMetrics, observeEvictions } from "./observe.ts";

/** A minute more than the taint eviction controller comes back by itself (docs/design.md#single-attempts). */
const AFTER_MS = 26 * 60_000;
const LAST_EVENTS_MS = 2_000;
const QUEUE = "nodes";

export const evictionRetryOptions = defineOptions({
  name: "podseidon-eviction-retry",
  version,
  summary: "Evicts pods from nodes with NoExecute taints when their denied deletion is repeated by nobody.",
  options: {
    ...kubeconfigOptions,
    after: option(
      duration({ maxMs: 24 * 3_600_000 }),
      AFTER_MS,
      "How long after the end of its toleration a pod is left to the taint eviction " +
        "controller, which the webhook tells to come back for 25 minutes.",
    ),
    interval: option(
      duration({ minMs: 50, maxMs: 3_600_000 }),
      15_000,
      "Pause between two looks at the pods of a tainted node. A denied " +
        "eviction is tried again after one to eight of them.",
    ),
    ...leaderElectionOptions,
    ...observeOptions,
  },
  check: checkLeaderElection,
});

type EvictionRetryFlags = OptionValues<(typeof evictionRetryOptions)["options"]>;

export const evictionRetryController: Controller<EvictionRetryFlags> = {
  name: evictionRetryOptions.name,
  flags: () => commandLine(evictionRetryOptions),
  graceMs: 10_000,
  election: (flags) => ({ ...flags, lease: evictionRetryOptions.name }),
  build,
};

function watchNodes({ transport, ports, log, metrics }: ControllerContext<EvictionRetryFlags>): Reflector<TaintedNode> {
  const watches = observeListWatch({ metrics, log, clock: ports.clock });
  const nodes = new Reflector<TaintedNode>({
    ...{ name: "nodes", transport, ports, path: "/api/v1/nodes", parse: parseTaintedNode },
    uidOf: ({ uid }) => uid,
    versionOf: ({ resourceVersion }) => resourceVersion,
    onEvent: watches.observe("nodes"),
  });
  watches.track("nodes", nodes);
  return nodes;
}

function build(context: ControllerContext<EvictionRetryFlags>): ControllerParts {
  const { flags, ports, log, metrics, transport, mayWrite } = context;
  const nodes = watchNodes(context);
  const onOutcome = observeKubernetesEvents(metrics);
  const events = new EventRecorder({ transport, ports, component: evictionRetryOptions.name, onOutcome });
  const queues = observeReconciles(metrics, log);
  let current: EvictionRetrier | undefined;
  queues.track(QUEUE, () => current?.queue);
  evictionMetrics(metrics, () => current);
  const options = {
    ...{ api: new ApiClient(transport), nodes, ports, mayWrite },
    afterMs: flags.after,
    intervalMs: flags.interval,
    onEvent: observeEvictions(metrics, log, events, ports.clock),
    onQueueEvent: queues.observe(QUEUE),
    onOutcome: queues.outcomes<string>(QUEUE),
  };
  return {
    lead: async (signal) => {
      current = new EvictionRetrier(options);
      await current.run(signal);
      current = undefined;
    },
    parts: [
      {
        name: "nodes",
        start: () => nodes.start(),
        stop: () => nodes.stop(),
        ready: () => (nodes.synced ? undefined : "not listed yet"),
      },
      { name: "events", stop: () => events.stop(LAST_EVENTS_MS) },
    ],
  };
}
