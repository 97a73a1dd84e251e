/** An aggregator in virtual time, with a fake cell and fake cores. */
import { Aggregator, type AggregatorOptions } from "../../../controllers/aggregator/aggregator.ts";
import { podParser } from "../../../controllers/aggregator/counting/parsers.ts";
import type { AggregatorEvent } from "../../../controllers/aggregator/observe/events.ts";
import type { Ports } from "../../../shared/runtime/clock.ts";
import { VirtualTime } from "../runtime/virtual-ports.ts";
import { FakeCell, FakeCore } from "./fake-clusters.ts";

export { bucket } from "./fake-clusters.ts";

export const SETTLE_MS = 10_000;
export const HEARTBEAT_MS = 120_000;

export type AggregatorHarnessOptions = Partial<AggregatorOptions> & {
  readonly coreNames?: readonly string[];
  /** The ports of the aggregator, in the time of the harness. */
  readonly portsIn?: (time: VirtualTime) => Ports;
};

export class AggregatorHarness {
  readonly time = new VirtualTime({ seed: 5 });
  readonly cell = new FakeCell();
  readonly cores: readonly FakeCore[];
  readonly events: AggregatorEvent[] = [];
  readonly aggregator: Aggregator;
  /** Whether this process holds the lease. */
  isLeader = true;
  /** How often a term has said that it has counted. */
  countedTerms = 0;
  #leading = new AbortController();
  #work: Promise<void> = Promise.resolve();

  constructor(options: AggregatorHarnessOptions = {}) {
    this.cores = (options.coreNames ?? ["core"]).map((name) => new FakeCore(name, this.time));
    this.aggregator = new Aggregator({
      cellID: "cell",
      ports: options.portsIn?.(this.time) ?? this.time,
      pods: this.cell.pods,
      parser: podParser(options.algorithm ?? "exact"),
      cellClient: this.cell.client,
      cores: this.cores.map((core) => core.access),
      triggerNamespace: "ns",
      settleMs: SETTLE_MS,
      heartbeatMs: HEARTBEAT_MS,
      algorithm: "exact",
      voidAfterMs: 0,
      rateMs: undefined,
      coalesceMs: 5,
      writeConcurrency: 4,
      timeoutMs: 5_000,
      gateBoundMs: 30_000,
      mayWrite: () => this.isLeader,
      onEvent: (event) => this.events.push(event),
      ...options,
    });
  }

  get core(): FakeCore {
    const [core] = this.cores;
    if (core === undefined) throw new Error("there is no core");
    return core;
  }

  /** Lists cell and cores, leads, and resolves after the first reconciles. */
  async start(): Promise<this> {
    this.cell.sync();
    for (const core of this.cores) core.sync();
    this.lead();
    await this.run(50);
    return this;
  }

  lead(): void {
    this.#leading = new AbortController();
    const { signal } = this.#leading;
    this.#work = this.aggregator.lead(signal, () => {
      this.countedTerms++;
    });
  }

  async loseLeadership(): Promise<void> {
    this.isLeader = false;
    this.#leading.abort();
    await this.#work;
  }

  /** Lets virtual time pass. */
  run(ms: number): Promise<void> {
    return this.time.advance(ms);
  }

  /** The pods' stream reaches a quorum LIST that is sent now. */
  confirmNow(): void {
    this.cell.pods.confirm(this.time.clock.monotonicMs());
  }

  /** The rules that settled records, in order. */
  settled(): string[] {
    return this.events.flatMap((event) => (event.kind === "dropped" ? [event.rule] : []));
  }
}

/** An aggregator that has counted the available pods `a`, `b` and `c` of protector `p` in each core. */
export async function counted(options: AggregatorHarnessOptions = {}): Promise<AggregatorHarness> {
  const harness = new AggregatorHarness(options);
  for (const core of harness.cores) core.put("p");
  for (const name of ["a", "b", "c"]) harness.cell.putUnseen(name);
  return await harness.start();
}

/** Weights of the reservations of `p` in the cell. */
export function weights(harness: AggregatorHarness): number[] {
  return (harness.core.entry("p")?.admissionHistory?.buckets ?? []).map(({ counter }) => counter ?? 1);
}
