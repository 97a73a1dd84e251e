/** The generator and the aggregator of one world: shipping code in this process, each on a transport of its own. */
import { Aggregator } from "../../controllers/aggregator/aggregator.ts";
import { parseTrimmedProtector, podParser } from "../../controllers/aggregator/counting/parsers.ts";
import type { AggregatorEvent } from "../../controllers/aggregator/observe/events.ts";
import { Generator } from "../../controllers/generator/generator.ts";
import type { GeneratorEvent } from "../../controllers/generator/protectors/events.ts";
import { plugins } from "../../controllers/generator/sources/plugins.ts";
import { ApiClient } from "../../shared/kube/client/api-client.ts";
import { PODPROTECTORS_PATH } from "../../shared/kube/client/api-path.ts";
import type { Transport } from "../../shared/kube/client/transport.ts";
import { Reflector } from "../../shared/kube/informer/reflector.ts";
import { systemPorts as ports } from "../../shared/runtime/system-ports.ts";
import type { QueueEvent } from "../../shared/runtime/work-queue.ts";
import { type Pod, stubOfPod } from "../../shared/schema/pod.ts";
import type { PodProtector } from "../../shared/schema/podprotector.ts";
import { PROTECT_SELECTOR } from "./kinds.ts";

const CELL = "cell";
/** Of counted kinds and budgets. */
const GENERATOR_KINDS = ["deployment", "poddisruptionbudget", "podunavailablebudget", "xpoddisruptionbudget"];
const SETTLE_MS = 1_000;
const TIMEOUT_MS = 10_000;
const HEARTBEAT_MS = 600_000;

export interface ObservedComponent {
  readonly name: string;
  /** Everything that it has read is done: no key is ready, in work, or waits to be tried again. */
  readonly isIdle: () => boolean;
  /** What should not happen whatever it reads. */
  readonly problems: () => readonly string[];
  stop(): Promise<void>;
}

/** Follows the events of a work queue. */
class QueueWatch {
  #ready = 0;
  #working = 0;
  #retryMs = 0;

  readonly onEvent = (event: QueueEvent): void => {
    if (event.kind === "queued") this.#ready += 1;
    else if (event.kind === "taken") {
      this.#ready -= 1;
      this.#working += 1;
    } else if (event.kind === "done") this.#working -= 1;
    else if (event.kind === "retried") this.#retryMs = Math.max(this.#retryMs, performance.now() + event.delayMs);
  };

  get isIdle(): boolean {
    return this.#ready === 0 && this.#working === 0 && performance.now() > this.#retryMs;
  }
}

export function startGenerator(transport: Transport, namespace: string): ObservedComponent {
  const queue = new QueueWatch();
  const problems: string[] = [];
  const stopping = new AbortController();
  const onEvent = (event: GeneratorEvent): void => {
    // A conflict is retried, and so is a call without an answer.
    if (event.kind !== "failed" || event.tag !== "rejected") return;
    problems.push(`generator: ${event.source}: ${event.error.message}`);
  };
  const generator = new Generator({
    ...{ transport, ports, concurrency: 16, mayWrite: () => true, registerNamespace: namespace },
    plugins: plugins({ protectSelector: PROTECT_SELECTOR, protectNonZero: true, kinds: GENERATOR_KINDS }),
    observer: { generator: onEvent, watch: () => {}, queue: queue.onEvent },
  });
  const running = generator.lead(stopping.signal);
  return {
    get name() {
      return `generator (${generator.problem() ?? "leading"})`;
    },
    isIdle: () => generator.isLeading && generator.problem() === undefined && queue.isIdle,
    problems: () => problems,
    async stop() {
      stopping.abort();
      await running;
    },
  };
}

export function startAggregator(transport: Transport): ObservedComponent {
  const queue = new QueueWatch();
  const problems: string[] = [];
  const stopping = new AbortController();
  const parser = podParser("exact");
  const pods = new Reflector<Pod>({
    ...{ name: "pods", path: "/api/v1/pods", transport, ports, parse: parser.parse, stub: stubOfPod },
    keyOf: (pod) => `${pod.namespace}/${pod.name}`,
    uidOf: (pod) => pod.uid,
    versionOf: (pod) => pod.resourceVersion,
    unparsable: "keepLast",
    onEvent: (event) => aggregator.onPodWatch(event),
  });
  const protectors = new Reflector<PodProtector>({
    ...{ name: "protectors", path: PODPROTECTORS_PATH, transport, ports, parse: parseTrimmedProtector },
    keyOf: ({ metadata }) => `${metadata.namespace ?? ""}/${metadata.name}`,
    uidOf: ({ metadata }) => metadata.uid,
    versionOf: ({ metadata }) => metadata.resourceVersion,
    unparsable: "keepLast",
    onEvent: (event) => aggregator.onProtectorWatch("core", event),
  });
  const client = new ApiClient(transport);
  const onEvent = (event: AggregatorEvent): void => {
    if (event.kind !== "writeFailed" || event.failure !== "rejected") return;
    problems.push(`aggregator: ${event.id.name}: ${event.message}`);
  };
  const aggregator: Aggregator = new Aggregator({
    ...{ cellID: CELL, ports, pods, parser, cellClient: client, algorithm: "exact", mayWrite: () => true, onEvent },
    ...{ settleMs: SETTLE_MS, heartbeatMs: HEARTBEAT_MS, voidAfterMs: 0, gateBoundMs: 30_000 },
    ...{ rateMs: 0, coalesceMs: 1, writeConcurrency: 8, timeoutMs: TIMEOUT_MS, triggerNamespace: undefined },
    cores: [{ name: "core", api: client, protectors }],
    onQueueEvent: (_, event) => queue.onEvent(event),
  });
  pods.start();
  protectors.start();
  const running = aggregator.lead(stopping.signal);
  return {
    name: "aggregator",
    isIdle: () => aggregator.coreReconcilers.size > 0 && queue.isIdle,
    problems: () => problems,
    async stop() {
      stopping.abort();
      await Promise.all([running, pods.stop(), protectors.stop()]);
    },
  };
}
