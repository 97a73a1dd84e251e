/**
 * The simulated world of one seed: core clusters, cells, webhook replicas, aggregators and a generator running the
 * shipping code, clients, and faults. Everything that happens follows from the seed.
 *
 * The folders of the simulation, in the order to read them:
 * - `scenario/`: what a seed is made of. `world/`: the world itself, and one run of it (`run.ts`).
 * - `apiserver/`: the model of kube-apiserver and etcd. `contract/` holds it to the real one.
 * - `actors/`: the processes of the product, and everybody else who acts: clients, kubelets, controllers, operators.
 * - `faults/`, `accidents/`: what goes wrong.
 * - `truth/`: what is true, from what the servers store. `judge/`: the invariants, checked against the truth. Neither
 *   asks a component what it believes, and where they can they share no code with the product.
 * - `directed/`: one scene for each rule of the protocol. `ablation/`: how a rule is left out. `accounting/`: the
 *   settling rules alone. `runner/`: seeds in processes, and reports of failures.
 */

import { COUNTED_GATE } from "../../../shared/schema/annotations.ts";
import { type ProcessPorts, VirtualTime } from "../../support/runtime/virtual-ports.ts";
import { AggregatorNode } from "../actors/aggregator-node.ts";
import { openGatesOnStart } from "../actors/gate-controllers.ts";
import { GeneratorNode } from "../actors/generator-node.ts";
import { Replica } from "../actors/replica.ts";
import { replicaObserver } from "../actors/replica-observer.ts";
import { ShardLinks } from "../actors/shard-links.ts";
import { PROBE, WorkloadOwner } from "../actors/workload-owner.ts";
import { Etcd, type EtcdChange } from "../apiserver/etcd.ts";
import { SimulatedLink } from "../apiserver/link.ts";
import { ApiServer } from "../apiserver/server.ts";
import { OWN_CONDITION, setConditionsOnStart } from "../faults/pod-states.ts";
import { endShardFaults, shardCount } from "../faults/shard-faults.ts";
import { SimulatedBackups } from "../faults/simulated-backups.ts";
import { SimulatedSource } from "../faults/simulated-source.ts";
import { Contention } from "../judge/contention.ts";
import { CountedGates, GATE_BOUND_MS } from "../judge/counted-gates.ts";
import { Coverage } from "../judge/coverage.ts";
import { Denials } from "../judge/denials.ts";
import { Exemptions } from "../judge/exemptions.ts";
import { Livelock } from "../judge/livelock.ts";
import { ProtectorChecks } from "../judge/protector-checks.ts";
import { ResponseChecks } from "../judge/response-checks.ts";
import { Shortfalls } from "../judge/shortfall.ts";
import { Suspensions } from "../judge/suspensions.ts";
import { Chance } from "../scenario/random.ts";
import {
  drawScenario,
  type FaultKind,
  PROTECTORS,
  type ProtectorPlan,
  type Scenario,
  type WorldSize,
} from "../scenario/scenario.ts";
import { isRecorded } from "../truth/stored-protectors.ts";
import { makeCell, type SimulatedCell } from "./cell.ts";
import { Network } from "./network.ts";
import { serverSettings } from "./server-settings.ts";
import { podLine, protectorLine } from "./trace-lines.ts";

interface WorldOptions {
  readonly without?: ReadonlySet<FaultKind>;
  readonly always?: ReadonlySet<FaultKind>;
  readonly size?: WorldSize;
  readonly trace?: boolean;
  /** Replaces what the seed draws. */
  readonly scenario?: Scenario;
  /** Protectors exist from the start; default true. */
  readonly isProtected?: boolean;
}

/** What a scene or an accident sets by hand, by the name of a server. Elsewhere the scenario decides. */
interface Overrides {
  readonly watchLagMs: Map<string, number>;
  /** Undefined as a value: the commit never happens. */
  readonly commitDelayMs: Map<string, number | undefined>;
  readonly objectLimitBytes: Map<string, number>;
}

export interface Violation {
  readonly invariant: string;
  readonly atMs: number;
  readonly message: string;
}

/** A larger skew keeps pods from maturing, or lets them mature at once, for the length of the skew. */
const MAX_SKEW_MS = 120_000;
const MAX_TRACE_LINES = 20_000;
/** Generator events that coverage counts. */
const GENERATED = ["created", "updated", "restored", "replaced", "released", "sourceVanished"] as const;

const no = (): boolean => false;

export class World {
  readonly time: VirtualTime;
  readonly chance: Chance;
  readonly scenario: Scenario;
  readonly coverage = new Coverage();
  readonly network: Network;
  /** By name; at least one. */
  readonly cores: ReadonlyMap<string, ApiServer>;
  readonly cells = new Map<string, SimulatedCell>();
  readonly checks: ProtectorChecks;
  readonly exemptions: Exemptions;
  readonly suspensions: Suspensions;
  /** Present where the first protector probes its workload's owner. */
  readonly owner: WorkloadOwner | undefined;
  /** Present where new pods get the counted gate. */
  readonly countedGates: CountedGates | undefined;
  /** Present where the generator makes the protector. */
  readonly source: SimulatedSource | undefined;
  /** Present where aggregators keep backups of protectors in their cells. */
  readonly backups: SimulatedBackups | undefined;
  readonly denials: Denials;
  readonly contention = new Contention((invariant, message) => this.violation(invariant, message));
  readonly violations: Violation[] = [];
  readonly trace: string[] = [];
  /** Checks S2; present only where specs stay unchanged. */
  readonly shortfalls: Shortfalls | undefined;
  replicas: Replica[] = [];
  faultsActive = true;
  /** Admission requests without a verdict are allowed, whatever the scenario says. */
  failsOpen = false;
  readonly overrides: Overrides = { watchLagMs: new Map(), commitDelayMs: new Map(), objectLimitBytes: new Map() };
  readonly #tracing: boolean;
  readonly #responses = new ResponseChecks(this);
  readonly #replicaObserver = replicaObserver(this.coverage, (message) => this.violation("S13", message));
  readonly #processes: ProcessPorts[] = [];
  readonly #whenCalm: (() => void)[] = [];
  readonly #livelock = new Livelock(
    () => this.time.elapsedMs,
    (what) => this.violation("livelock", what),
  );
  /** Present where pods are watched in shards. */
  readonly #shardChance: Chance | undefined;

  constructor(seed: number, { without, always, size, trace = false, scenario, isProtected = true }: WorldOptions) {
    this.#tracing = trace;
    this.chance = new Chance(seed);
    this.scenario = scenario ?? drawScenario(seed, this.chance.fork(), without, size, always);
    this.time = new VirtualTime({ seed });
    this.network = new Network(this.chance.fork(), () => this.#isRequestLost());
    const coreNames = new Set(this.scenario.protectors.map(({ core }) => core));
    if (coreNames.size > 1) this.coverage.fault("secondCore");
    if (this.scenario.protectors.length > 2) this.coverage.fault("crowded");
    this.cores = new Map([...coreNames].map((name) => [name, this.#server(name, new Etcd())]));
    this.exemptions = new Exemptions(() => this.time.elapsedMs);
    this.owner = this.scenario.features.probeEveryMs > 0 ? this.#owner() : undefined;
    this.exemptions.forcesAll = this.scenario.features.isDryRunMode;
    this.suspensions = new Suspensions({
      exemptions: this.exemptions,
      elapsedMs: () => this.time.elapsedMs,
      isRecorded: (name, cell, request) => isRecorded(this.coreOf(name), name, cell, request),
      rule: (name) => this.coverage.rule(name),
      violation: (invariant, message) => this.violation(invariant, message),
    });
    this.checks = new ProtectorChecks({
      exemptions: this.exemptions,
      elapsedMs: () => this.time.elapsedMs,
      wallMs: () => this.time.clock.nowMs(),
      cells: this.cells,
      rule: (name) => this.coverage.rule(name),
      violation: (invariant, message) => this.violation(invariant, message),
    });
    this.denials = new Denials(
      (invariant, message) => this.violation(invariant, message),
      () => this.time.elapsedMs,
    );
    for (let index = 1; index <= this.scenario.cells; index += 1) this.#addCell(`cell-${index}`);
    if (Shortfalls.applies(this.scenario))
      this.shortfalls = new Shortfalls(
        this.cells,
        this.exemptions,
        () => this.time.clock.monotonicMs(),
        (invariant, message) => this.violation(invariant, message),
      );
    for (const core of this.cores.values()) {
      const { name, etcd } = core;
      etcd.observe((change) => this.#protectorChanged(name, change));
      core.statusWritten = (user, key, status) => {
        if (status === 500) this.coverage.rule(`the ${user} can't write a protector that is too large`);
        // Two leaders of one cell, whose clocks differ, write as fast as they can, and no webhook is meant to win.
        const isFight = [...this.cells.values()].some(({ oldLeaders }) => oldLeaders > 0);
        if (user === "webhook" && !isFight) this.contention.wrote(`${name} ${key}`, status, this.time.elapsedMs);
      };
    }
    if (this.scenario.features.conditionEveryMs > 0) setConditionsOnStart(this, this.chance.fork());
    if (this.scenario.features.habits.has("voluntaryGates")) openGatesOnStart(this, this.chance.fork());
    this.countedGates = this.scenario.features.countedGateEveryMs > 0 ? new CountedGates(this) : undefined;
    const isSourced = this.scenario.features.generatorEveryMs > 0;
    this.#shardChance = this.scenario.features.shards > 1 ? this.chance.fork() : undefined;
    const [core] = this.cores.values();
    this.source = isSourced && core !== undefined ? new SimulatedSource(this, core, this.chance.fork()) : undefined;
    this.backups =
      this.scenario.features.backupsEveryMs > 0 ? new SimulatedBackups(this, this.chance.fork()) : undefined;
    if (isProtected && !isSourced) for (const plan of this.scenario.protectors) this.createProtector(plan);
    for (let index = 0; index < this.scenario.webhooks; index += 1) this.replicas.push(this.startReplica());
    for (const cell of this.cells.values()) cell.aggregators.push(this.startAggregator(cell));
    this.backups?.start();
  }

  /** Returns the core that hosts the protector. */
  coreOf(protector: string): ApiServer {
    const plan = this.scenario.protectors.find(({ name }) => name === protector);
    const core = plan === undefined ? undefined : this.cores.get(plan.core);
    if (core === undefined) throw new Error(`no core holds ${protector}`);
    return core;
  }

  createProtector({ name, labels, compactThreshold, ...plan }: ProtectorPlan): void {
    const { minAvailable, minReadySeconds, unhealthyPodPolicy } = plan;
    const { inPlaceEveryMs, probeEveryMs, conditionEveryMs, countedGateEveryMs, backupsEveryMs, criteria } =
      this.scenario.features;
    const isAsking = probeEveryMs > 0 && name === this.scenario.protectors[0]?.name;
    const admissionHistoryConfig = { compactThreshold };
    const criterion = criteria[this.scenario.protectors.findIndex((one) => one.name === name)] ?? "Available";
    if (criterion !== "Available") this.coverage.fault("criterion");
    const gate = countedGateEveryMs > 0 ? { annotations: { [COUNTED_GATE]: "enabled" } } : {};
    const spec = {
      ...{ minAvailable, minReadySeconds, unhealthyPodPolicy, selector: { matchLabels: labels } },
      admissionHistoryConfig,
      ...(inPlaceEveryMs > 0 ? { protectedOperations: ["DELETE", "EVICT", "UPDATE"] } : {}),
      ...(isAsking ? { probe: PROBE } : {}),
      ...(criterion === "Available" ? {} : { healthCriterion: criterion }),
      ...(conditionEveryMs > 0 ? { availabilityConditions: [OWN_CONDITION] } : {}),
    };
    void this.coreOf(name).handle({
      ...{ method: "POST", path: PROTECTORS, contentType: "application/json", user: "operator" },
      body: { metadata: { name, ...gate, ...(backupsEveryMs > 0 ? SimulatedBackups.metadataOf(name) : {}) }, spec },
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
    this.exemptions.replicaStarted();
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
      observer: this.#replicaObserver,
      dryRunMode: this.scenario.features.isDryRunMode,
      enforcesLost: this.backups !== undefined || this.scenario.features.generatorEveryMs > 0,
      askOwner: this.owner?.askedBy(ports),
    });
    this.backups?.replicaStarted(replica);
    return replica;
  }

  startAggregator(cell: SimulatedCell, marksNamespaces = false): AggregatorNode {
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
      ...(this.countedGates === undefined ? {} : { gateBoundMs: GATE_BOUND_MS }),
      keepsBackups: this.backups !== undefined,
      marksNamespaces,
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

  /** Calls `act` when faults end. */
  onEnd(act: () => void): void {
    this.#whenCalm.push(act);
  }

  /** Ends all faults for good: the network is whole and clocks are right from here on. */
  endFaults(): void {
    this.faultsActive = false;
    this.failsOpen = false;
    this.owner?.setMode("yes");
    this.source?.playLast();
    this.backups?.playLast();
    for (const act of this.#whenCalm) act();
    this.network.heal();
    for (const cell of this.cells.values()) endShardFaults(cell);
    for (const ports of this.#processes) {
      ports.resume();
      ports.stepWallClock(-ports.skewMs);
    }
  }

  /** Picks one of all processes so far, alive or dead. */
  someProcess(chance: Chance): ProcessPorts {
    return chance.pick(this.#processes);
  }

  /** A link without faults, for callers outside the simulation. */
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
    const server = this.#server(name, new Etcd());
    const cell = makeCell(this, server, {
      responded: (inFlight, response) => this.#responses.responded(name, inFlight, response),
      podChanged: (change) => {
        if (this.#tracing) this.#tracePod(name, change);
        this.#guard(() => this.shortfalls?.podChanged(name, change));
      },
    });
    this.cells.set(name, cell);
  }

  #owner(): WorkloadOwner {
    return new WorkloadOwner({
      ...{ ports: this.time, chance: this.chance.fork(), protector: this.scenario.protectors[0]?.name ?? "" },
      rule: (name) => this.coverage.rule(name),
      violation: (invariant, message) => this.violation(invariant, message),
    });
  }

  #protectorChanged(core: string, change: EtcdChange): void {
    if (!change.key.startsWith("podprotectors/")) return;
    if (this.#tracing) this.note(`${core} ${protectorLine(change)}`);
    this.#guard(() => this.checks.changed(change));
    this.#guard(() => this.denials.changed(core, change));
    this.suspensions.stored(change.key.slice(change.key.lastIndexOf("/") + 1), change.after);
    this.#guard(() => this.shortfalls?.protectorChanged(change));
  }

  /** A check that throws is a defect of the simulation, and must not look like a failed request. */
  #guard(check: () => void): void {
    try {
      check();
    } catch (error) {
      this.violation("check", error instanceof Error ? (error.stack ?? error.message) : String(error));
    }
  }

  #tracePod(cell: string, change: EtcdChange): void {
    if (change.key.startsWith("pods/")) this.note(`${cell} ${podLine(change)}`);
  }
}
