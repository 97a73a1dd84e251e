/**
 * The simulated world of one seed: a core cluster, cells, webhook replicas and aggregators running the shipping code, those who
 * delete pods, and faults. Everything that happens follows from the seed.
 */

import { COUNTED_GATE } from "../../../shared/schema/annotations.ts";
import { type ProcessPorts, VirtualTime } from "../../support/runtime/virtual-ports.ts";
import { ReviewLog } from "../actors/admission-requests.ts";
import { AggregatorNode } from "../actors/aggregator-node.ts";
import { CHANGEABLE, Restarts } from "../actors/container-restarts.ts";
import { GeneratorNode } from "../actors/generator-node.ts";
import { Kubelet } from "../actors/kubelet.ts";
import { Replica } from "../actors/replica.ts";
import { ReplicaMetrics } from "../actors/replica-metrics.ts";
import { ShardLinks } from "../actors/shard-links.ts";
import { Workload } from "../actors/workload-controller.ts";
import { Owner, PROBE } from "../actors/workload-owner.ts";
import { Etcd, type EtcdChange } from "../apiserver/etcd.ts";
import { SimulatedLink } from "../apiserver/link.ts";
import { ApiServer } from "../apiserver/server.ts";
import { SimulatedBackups } from "../backups/backups.ts";
import { WARM, warmUp } from "../faults/pod-states.ts";
import { calmShards, shardCount } from "../faults/shard-faults.ts";
import { Sources } from "../faults/source-faults.ts";
import { type CellTruth, Checks } from "../judge/checks.ts";
import { Contention } from "../judge/contention.ts";
import { GATE_BOUND_MS, Gates } from "../judge/counted-gates.ts";
import { Coverage } from "../judge/coverage.ts";
import { Exemptions } from "../judge/exemptions.ts";
import { Livelock } from "../judge/livelock.ts";
import { Rejections } from "../judge/rejections.ts";
import { Answers } from "../judge/responses.ts";
import { Supply } from "../judge/supply.ts";
import { Suspensions } from "../judge/suspensions.ts";
import { PodTruth } from "../truth/pod-truth.ts";
import { Network } from "./network.ts";
import { Chance } from "./random.ts";
import { drawScenario, type FaultKind, type ProtectorPlan, type Scenario, type WorldSize } from "./scenario.ts";
import { serverSettings } from "./server-settings.ts";
import { describePod, describeProtector } from "./trace-lines.ts";

export const NAMESPACE = "default";
/** Path of all protectors of the one namespace. */
export const PROTECTORS = `/apis/podseidon.kubewharf.io/v1alpha1/namespaces/${NAMESPACE}/podprotectors`;

export interface WorldOptions {
  readonly without?: ReadonlySet<FaultKind>;
  readonly always?: ReadonlySet<FaultKind>;
  readonly size?: WorldSize;
  readonly trace?: boolean;
  /** Instead of what the seed draws. */
  readonly scenario?: Scenario;
  /** Protectors are made at the start; default true. */
  readonly isProtected?: boolean;
}

/** What a directed scene sets by hand, by the name of a server; otherwise the scenario decides. */
export interface Knobs {
  readonly watchLagMs: Map<string, number>;
  /** Undefined as a value: it never commits. */
  readonly commitDelayMs: Map<string, number | undefined>;
}

export interface Violation {
  readonly invariant: string;
  readonly atMs: number;
  readonly message: string;
}

export interface SimulatedCell extends CellTruth {
  readonly name: string;
  readonly server: ApiServer;
  readonly kubelet: Kubelet;
  readonly workload: Workload;
  readonly restarts: Restarts | undefined;
  aggregators: AggregatorNode[];
  /** Leaders that are none any more, and do not know it. */
  oldLeaders: number;
}

/** Clocks that are further apart keep pods from maturing, or let them mature at once, for as long. */
const MAX_SKEW_MS = 120_000;
const MAX_TRACE_LINES = 20_000;
/** Of what the generator tells. */
const GENERATED = ["created", "updated", "restored", "replaced", "released", "orphaned"] as const;

const no = (): boolean => false;

export class World {
  readonly time: VirtualTime;
  readonly chance: Chance;
  readonly scenario: Scenario;
  readonly coverage = new Coverage();
  readonly network: Network;
  /** By name; one of them at least. */
  readonly cores: ReadonlyMap<string, ApiServer>;
  readonly cells = new Map<string, SimulatedCell>();
  readonly checks: Checks;
  readonly exemptions: Exemptions;
  readonly suspensions: Suspensions;
  /** Whom the first protector asks. */
  readonly owner: Owner | undefined;
  /** Where new pods have the counted gate. */
  readonly gates: Gates | undefined;
  /** Where the generator keeps the protector. */
  readonly sources: Sources | undefined;
  /** Where the cells keep copies of the protectors. */
  readonly copies: SimulatedBackups | undefined;
  readonly rejections: Rejections;
  readonly contention = new Contention((invariant, message) => this.violation(invariant, message));
  readonly violations: Violation[] = [];
  readonly trace: string[] = [];
  /** S2; only where the spec stays what it is. */
  readonly supply: Supply | undefined;
  webhooks: Replica[] = [];
  faultsActive = true;
  /** Reviews without a verdict go on, whatever the scenario says. */
  failsOpen = false;
  readonly knobs: Knobs = { watchLagMs: new Map(), commitDelayMs: new Map() };
  readonly #tracing: boolean;
  readonly #answers = new Answers(this);
  readonly #metrics = new ReplicaMetrics(this.coverage);
  readonly #processes: ProcessPorts[] = [];
  readonly #whenCalm: (() => void)[] = [];
  readonly #livelock = new Livelock(
    () => this.time.elapsedMs,
    (what) => this.violation("livelock", what),
  );
  /** Where pods are watched in shards. */
  readonly #shardChance: Chance | undefined;

  constructor(seed: number, { without, always, size, trace = false, scenario, isProtected = true }: WorldOptions) {
    this.#tracing = trace;
    this.chance = new Chance(seed);
    this.scenario = scenario ?? drawScenario(seed, this.chance.fork(), without, size, always);
    this.time = new VirtualTime({ seed });
    this.network = new Network(this.chance.fork(), () => this.#isRequestLost());
    const coreNames = new Set(this.scenario.protectors.map(({ core }) => core));
    if (coreNames.size > 1) this.coverage.fault("secondCore");
    this.cores = new Map([...coreNames].map((name) => [name, this.#server(name, new Etcd())]));
    this.exemptions = new Exemptions(() => this.time.elapsedMs);
    this.owner = this.scenario.features.ownerEveryMs > 0 ? this.#owner() : undefined;
    this.exemptions.forcesAll = this.scenario.features.isDryRunMode;
    this.suspensions = new Suspensions({
      exemptions: this.exemptions,
      elapsedMs: () => this.time.elapsedMs,
      rule: (name) => this.coverage.rule(name),
      violation: (invariant, message) => this.violation(invariant, message),
    });
    this.checks = new Checks({
      exemptions: this.exemptions,
      elapsedMs: () => this.time.elapsedMs,
      cells: this.cells,
      rule: (name) => this.coverage.rule(name),
      violation: (invariant, message) => this.violation(invariant, message),
    });
    this.rejections = new Rejections(
      (invariant, message) => this.violation(invariant, message),
      () => this.time.elapsedMs,
    );
    for (let index = 1; index <= this.scenario.cells; index += 1) this.#addCell(`cell-${index}`);
    if (Supply.applies(this.scenario))
      this.supply = new Supply(this.cells, this.exemptions, (invariant, message) => this.violation(invariant, message));
    for (const core of this.cores.values()) {
      const { name, etcd } = core;
      etcd.observe((change) => this.#protectorChanged(name, change));
      core.wrote = (user, key, status) => {
        if (user === "webhook") this.contention.wrote(`${name} ${key}`, status, this.time.elapsedMs);
      };
    }
    if (this.scenario.features.chillEveryMs > 0) warmUp(this, this.chance.fork());
    this.gates = this.scenario.features.gateEveryMs > 0 ? new Gates(this) : undefined;
    const isSourced = this.scenario.features.generatorEveryMs > 0;
    this.#shardChance = this.scenario.features.shards > 1 ? this.chance.fork() : undefined;
    const [core] = this.cores.values();
    this.sources = isSourced && core !== undefined ? new Sources(this, core, this.chance.fork()) : undefined;
    this.copies = this.scenario.features.copiesEveryMs > 0 ? new SimulatedBackups(this, this.chance.fork()) : undefined;
    if (isProtected && !isSourced) for (const plan of this.scenario.protectors) this.createProtector(plan);
    for (let index = 0; index < this.scenario.webhooks; index += 1) this.webhooks.push(this.startReplica());
    for (const cell of this.cells.values()) cell.aggregators.push(this.startAggregator(cell));
    this.copies?.begin();
  }

  /** The core that holds the protector. */
  coreOf(protector: string): ApiServer {
    const plan = this.scenario.protectors.find(({ name }) => name === protector);
    const core = plan === undefined ? undefined : this.cores.get(plan.core);
    if (core === undefined) throw new Error(`no core holds ${protector}`);
    return core;
  }

  createProtector({ name, labels, compactThreshold, ...plan }: ProtectorPlan): void {
    const { minAvailable, minReadySeconds, unhealthyPodPolicy } = plan;
    const { changeEveryMs, ownerEveryMs, chillEveryMs, gateEveryMs, copiesEveryMs } = this.scenario.features;
    const isAsking = ownerEveryMs > 0 && name === this.scenario.protectors[0]?.name;
    const admissionHistoryConfig = { compactThreshold };
    const gate = gateEveryMs > 0 ? { annotations: { [COUNTED_GATE]: "enabled" } } : {};
    const spec = {
      ...{ minAvailable, minReadySeconds, unhealthyPodPolicy, selector: { matchLabels: labels } },
      admissionHistoryConfig,
      ...(changeEveryMs > 0 ? { protectedOperations: ["DELETE", "EVICT", "UPDATE"] } : {}),
      ...(isAsking ? { probe: PROBE } : {}),
      ...(chillEveryMs > 0 ? { availabilityConditions: [WARM] } : {}),
    };
    void this.coreOf(name).handle({
      ...{ method: "POST", path: PROTECTORS, contentType: "application/json", user: "operator" },
      body: { metadata: { name, ...gate, ...(copiesEveryMs > 0 ? SimulatedBackups.metadataOf(name) : {}) }, spec },
    });
  }

  violation(invariant: string, message: string): void {
    const violation = { invariant, atMs: Math.round(this.time.elapsedMs), message };
    this.violations.push(violation);
    this.note(`VIOLATION ${invariant}: ${message}`);
  }

  note(line: string): void {
    if (this.#tracing && this.trace.length < MAX_TRACE_LINES)
      this.trace.push(`${(this.time.elapsedMs / 1000).toFixed(3).padStart(9)} ${line}`);
  }

  startReplica(): Replica {
    this.exemptions.newcomer();
    const ports = this.#process();
    const cores = this.#coreLinks("webhook", ports);
    const cells = [...this.cells.values()].map(({ name, server }) => ({
      name,
      transport: this.#link(server, "webhook", ports),
    }));
    const replica = new Replica({
      ports,
      cores,
      cells,
      settleMs: this.scenario.settleMs,
      metrics: this.#metrics,
      dryRunMode: this.scenario.features.isDryRunMode,
      outlive: this.copies !== undefined || this.scenario.features.generatorEveryMs > 0,
      askOwner: this.owner?.askedBy(ports),
      onDefect: (message) => this.violation("S13", message),
    });
    this.copies?.started(replica);
    return replica;
  }

  startAggregator(cell: SimulatedCell): AggregatorNode {
    const { settleMs, rateMs } = this.scenario;
    const ports = this.#process();
    const shards = this.#shardChance === undefined ? 1 : shardCount(this.scenario.features, this.#shardChance);
    const cellLinks = new ShardLinks(shards, () => this.#link(cell.server, "aggregator", ports));
    const cores = this.#coreLinks("aggregator", ports);
    return new AggregatorNode({
      cell: cell.name,
      ports,
      cellLinks,
      cores,
      settleMs,
      rateMs,
      coverage: this.coverage,
      noticedRestore: () => {
        this.#livelock.happened(`${cell.name} is taken for restored`);
        this.exemptions.restoreNoticed(cell.name);
      },
      ...(this.gates === undefined ? {} : { gateBoundMs: GATE_BOUND_MS }),
      outlive: this.copies !== undefined,
    });
  }

  startGenerator(core: ApiServer): GeneratorNode {
    const ports = this.#process();
    const transport = this.#link(core, "generator", ports);
    return new GeneratorNode({ ports, transport, onEvent: ({ kind }) => this.#generatorDid(kind) });
  }

  #generatorDid(kind: string): void {
    const rule = GENERATED.find((one) => one === kind);
    if (rule !== undefined) this.coverage.rule(`generator: ${rule}`);
  }

  /** `act` is called when faults stop. */
  whenCalm(act: () => void): void {
    this.#whenCalm.push(act);
  }

  /** Faults stop for good: the network is whole, and clocks are right from here on. */
  calm(): void {
    this.faultsActive = false;
    this.failsOpen = false;
    this.owner?.turn("yes");
    this.sources?.last();
    this.copies?.last();
    for (const act of this.#whenCalm) act();
    this.network.heal();
    for (const cell of this.cells.values()) calmShards(cell);
    for (const ports of this.#processes) {
      ports.resume();
      ports.stepWallClock(-ports.skewMs);
    }
  }

  /** Alive or not. */
  someProcess(chance: Chance): ProcessPorts {
    return chance.pick(this.#processes);
  }

  /** A connection without faults, for what is no part of the simulation. */
  plainLink(server: ApiServer): SimulatedLink {
    const faults = { delayMs: () => 1, requestsLost: no, responsesLost: no, oneLost: no, refused: no };
    return new SimulatedLink(server, this.time, faults, "operator");
  }

  #isRequestLost(): boolean {
    if (!this.faultsActive || !this.chance.chance(this.scenario.faults.requestTimeoutRate)) return false;
    this.coverage.fault("requestTimeout");
    return true;
  }

  #process(): ProcessPorts {
    const isWrong = this.faultsActive && this.scenario.faults.clockStepEveryMs > 0;
    const ports = this.time.process({ skewMs: isWrong ? this.chance.between(-MAX_SKEW_MS, MAX_SKEW_MS) : 0 });
    this.#processes.push(ports);
    return ports;
  }

  #coreLinks(user: string, ports: ProcessPorts): { readonly name: string; readonly transport: SimulatedLink }[] {
    return [...this.cores].map(([name, server]) => ({ name, transport: this.#link(server, user, ports) }));
  }

  #link(server: ApiServer, user: string, process: ProcessPorts): SimulatedLink {
    const link = new SimulatedLink(server, this.time, this.network.faultsOf(), user, process);
    this.network.add(link);
    return link;
  }

  #server(name: string, etcd: Etcd): ApiServer {
    return new ApiServer(name, etcd, this.time, serverSettings(this, name, this.chance.fork()));
  }

  #addCell(name: string): void {
    const etcd = new Etcd();
    const server = this.#server(name, etcd);
    const pods = new PodTruth(etcd);
    const reviews = new ReviewLog(name, etcd, {
      ports: this.time,
      scenario: this.scenario,
      chance: this.chance.fork(),
      coverage: this.coverage,
      faultsActive: () => this.faultsActive,
      replicas: () => this.webhooks,
      answered: (cell, flight, answer) => this.#answers.given(cell, flight, answer),
      failsOpen: () => this.failsOpen,
      failedOpen: (_cell, { uid }) => this.exemptions.unknown(uid),
      violation: (invariant, message) => this.violation(invariant, message),
    });
    server.admission = reviews;
    if (this.#tracing) etcd.observe((change) => this.#tracePod(name, change));
    etcd.observe((change) => this.#guard(() => this.supply?.podChanged(name, change)));
    const kubelet = new Kubelet(server, this.time, this.chance.fork());
    const isChanged = this.scenario.features.changeEveryMs > 0;
    const container = isChanged ? CHANGEABLE : {};
    const { podsPerCell } = this.scenario;
    const workload = new Workload(server, this.time, this.chance.fork(), podsPerCell, { app: "web" }, container);
    const restarts = isChanged ? this.#restarts(server, kubelet) : undefined;
    this.cells.set(name, { name, server, pods, reviews, kubelet, workload, restarts, aggregators: [], oldLeaders: 0 });
  }

  #owner(): Owner {
    return new Owner({
      ...{ ports: this.time, chance: this.chance.fork(), protector: this.scenario.protectors[0]?.name ?? "" },
      rule: (name) => this.coverage.rule(name),
      violation: (invariant, message) => this.violation(invariant, message),
    });
  }

  #restarts(server: ApiServer, kubelet: Kubelet): Restarts {
    const restarts = new Restarts({
      ...{ server, kubelet, time: this.time, chance: this.chance.fork() },
      faultsActive: () => this.faultsActive,
      rule: (name) => this.coverage.rule(name),
    });
    kubelet.isStopped = (uid) => restarts.isDown(uid);
    return restarts;
  }

  #protectorChanged(core: string, change: EtcdChange): void {
    if (!change.key.startsWith("podprotectors/")) return;
    if (this.#tracing) this.note(`${core} ${describeProtector(change)}`);
    this.#guard(() => this.checks.changed(change));
    this.#guard(() => this.rejections.changed(core, change));
    this.suspensions.stored(change.key.slice(change.key.lastIndexOf("/") + 1), change.after);
    this.#guard(() => this.supply?.protectorChanged(change));
  }

  /** A check that throws is a failure of the simulation and must not look like one of a request. */
  #guard(check: () => void): void {
    try {
      check();
    } catch (error) {
      this.violation("check", error instanceof Error ? (error.stack ?? error.message) : String(error));
    }
  }

  #tracePod(cell: string, change: EtcdChange): void {
    if (change.key.startsWith("pods/")) this.note(`${cell} ${describePod(change)}`);
  }
}
