/**
 * Lost protectors, and the backups that cells keep of them (docs/design.md#lost-protectors). Protectors are lost one by
 * one, with their CRD or with their core; others are released, or created again under the same name. Processes restart
 * meanwhile, and cells and cores are out of reach at times. `judge/lost-protectors.ts` checks S11 and
 * `judge/backup-checks.ts` checks L7.
 */
import {
  GENERATOR_FINALIZER,
  SOURCE_GROUP_LABEL,
  SOURCE_KIND_LABEL,
  SOURCE_NAME_LABEL,
  SOURCE_RESOURCE_LABEL,
} from "../../../shared/schema/annotations.ts";
import type { InFlightRequest, ObservedResponse } from "../actors/admission-requests.ts";
import { disrupt } from "../actors/clients.ts";
import { patchProtector } from "../actors/operators.ts";
import { releaseProtector } from "../actors/release.ts";
import type { Replica } from "../actors/replica.ts";
import type { EtcdBackup, Json } from "../apiserver/etcd.ts";
import { metadataOf } from "../apiserver/objects.ts";
import type { ApiServer } from "../apiserver/server.ts";
import { checkBackups } from "../judge/backup-checks.ts";
import { isByHand, isMarked, LostProtectors } from "../judge/lost-protectors.ts";
import type { Chance } from "../scenario/random.ts";
import { NAMESPACE, PROTECTORS, type ProtectorPlan } from "../scenario/scenario.ts";
import { StoredBackups } from "../truth/stored-backups.ts";
import type { World } from "../world/world.ts";
import { restartServer } from "./lost-history.ts";

/** An event is as frequent as it is listed. */
const EVENTS = [
  ...["lose", "lose", "strip", "deleteKind", "emptyCore", "release", "release", "replace"],
  ...["cutCell", "cutCore"],
] as const;
const PROCESSES = ["aggregator", "webhook"] as const;
/**
 * Where the generator makes the protector, the generator also releases it and creates it again
 * (`faults/source-faults.ts`).
 */
const EVENTS_OF_GENERATED = ["lose", "strip", "deleteKind", "cutCell", "cutCore"] as const;
const LAST = ["lose", "strip", "release", "replace", "deleteKind"] as const;
const LAST_OF_GENERATED = ["lose", "strip", "deleteKind"] as const;
const TEMPTED_MEAN_MS = 1_000;
const RESTART_RATE = 0.7;
const EVERY_REPLICA_RATE = 0.5;
const CRASH_MEAN_MS = 3_000;
const DOWN_MEAN_MS = 3_000;
const AGGREGATOR_RATE = 0.3;
const SEEN_MEAN_MS = 100;
const UNSERVED_MEAN_MS = 6_000;
const CUT_MEAN_MS = 12_000;
const KEEPER_EVERY_MS = 2_000;
/** A protector without a backup is created again by hand after this time. */
const PATIENCE_MS = 60_000;
const RELEASED_MEAN_MS = 8_000;
const REPLACED_MEAN_MS = 2_000;

export class SimulatedBackups {
  readonly stored: ReadonlyMap<string, StoredBackups>;
  readonly lost: LostProtectors;
  readonly #world: World;
  readonly #chance: Chance;
  readonly #isGenerated: boolean;
  /** Each core as it was before it hosted anything. */
  readonly #empty: ReadonlyMap<string, EtcdBackup>;
  /** How long a protector of this name may be absent, by name. */
  readonly #patienceMs = new Map<string, number>();

  constructor(world: World, chance: Chance) {
    this.#world = world;
    this.#chance = chance;
    const nowMs = (): number => world.time.elapsedMs;
    this.stored = new Map([...world.cells].map(([name, { server }]) => [name, new StoredBackups(server.etcd, nowMs)]));
    this.lost = new LostProtectors(world, this.stored);
    this.#empty = new Map([...world.cores].map(([name, { etcd }]) => [name, etcd.backup()]));
    this.#isGenerated = world.scenario.features.generatorEveryMs > 0;
    if (!this.#isGenerated) this.#keep();
  }

  /** Labels and finalizer as the generator sets them, so that only a release ends the protector. */
  static metadataOf(name: string): Json {
    const source = { [SOURCE_GROUP_LABEL]: "apps", [SOURCE_KIND_LABEL]: "Deployment" };
    const labels = { ...source, [SOURCE_RESOURCE_LABEL]: "deployments", [SOURCE_NAME_LABEL]: name };
    return { labels, finalizers: [GENERATOR_FINALIZER] };
  }

  replicaStarted(replica: Replica): void {
    this.lost.replicaStarted(replica);
  }

  responded(cell: string, inFlight: InFlightRequest | undefined, answer: ObservedResponse): void {
    this.lost.responded(cell, inFlight, answer);
  }

  coreRestored(core: ApiServer): void {
    this.lost.coreRestored(core);
  }

  cellRestored(cell: string): void {
    const back = this.stored.get(cell)?.refresh() ?? [];
    if (back.length > 0) this.#world.coverage.rule("backups: a restored cell brings back old backups");
  }

  /** Starts a second aggregator in some cell, so that both create the first chunk. */
  start(): void {
    const cell = this.#chance.pick([...this.#world.cells.values()]);
    const [old] = cell.aggregators;
    cell.aggregators.push(this.#world.startAggregator(cell));
    this.#world.time.timers.after(this.#chance.exponential(DOWN_MEAN_MS) + DOWN_MEAN_MS, () => {
      old?.kill();
      cell.aggregators = cell.aggregators.filter((node) => node !== old);
    });
  }

  playEvent(): void {
    this.#act(this.#chance.pick(this.#isGenerated ? EVENTS_OF_GENERATED : EVENTS));
  }

  /** The last fault. The quiet that follows has to repair it. */
  playLast(): void {
    this.#act(this.#chance.pick(this.#isGenerated ? LAST_OF_GENERATED : LAST));
  }

  async check(): Promise<void> {
    await checkBackups(this.#world, this);
  }

  #act(event: (typeof EVENTS)[number]): void {
    const world = this.#world;
    const plan = this.#chance.pick(world.scenario.protectors);
    const core = world.coreOf(plan.name);
    world.note(`backups: ${event} ${plan.name}`);
    const actions: Readonly<Record<typeof event, () => void>> = {
      lose: () => this.#lose(core, plan.name),
      strip: () => this.#strip(core, plan.name),
      deleteKind: () => this.#deleteKind(core),
      emptyCore: () => this.#emptyCore(core),
      release: () => this.#release(core, plan),
      replace: () => this.#replace(core, plan.name),
      cutCell: () => this.#cut(this.#chance.pick(PROCESSES), this.#chance.pick([...world.cells.keys()])),
      cutCore: () => this.#cut(this.#chance.pick(PROCESSES), core.name),
    };
    actions[event]();
    if (event !== "cutCell") this.#restartProcesses();
  }

  /**
   * Deletes the protector from its core's storage, in spite of finalizers. A protector that is being released is not
   * lost.
   */
  #lose({ etcd }: ApiServer, name: string): void {
    const key = `podprotectors/${NAMESPACE}/${name}`;
    const stored = etcd.get(key);
    if (stored === undefined || isMarked(stored.value) || isByHand(stored.value)) return;
    etcd.delete(key);
    this.#world.coverage.rule("backups: deleted from storage");
    this.#tempt();
  }

  /** An operator removes the finalizer of the protector and deletes it. */
  #strip(core: ApiServer, name: string): void {
    const stored = core.etcd.get(`podprotectors/${NAMESPACE}/${name}`);
    // The labels stay, which are the generator's other mark.
    if (stored === undefined || isMarked(stored.value) || metadataOf(stored.value).labels === undefined) return;
    patchProtector(this.#world, name, { metadata: { finalizers: null } });
    const path = `${PROTECTORS}/${name}`;
    void core.handle({ method: "DELETE", path, body: {}, contentType: "application/json", user: "operator" });
    this.#world.coverage.rule("backups: stripped and deleted");
    this.#tempt();
  }

  /** The protector is lost, and somebody creates another one under its name. */
  #replace(core: ApiServer, name: string): void {
    this.#patienceMs.set(name, this.#chance.exponential(REPLACED_MEAN_MS));
    this.#lose(core, name);
  }

  /** The CRD is deleted with all protectors of a core, and is back after a while. */
  #deleteKind(core: ApiServer): void {
    for (const { key } of core.etcd.range(`podprotectors/${NAMESPACE}/`)) this.#lose(core, key.split("/")[2] ?? "");
    const { timers } = this.#world.time;
    // Watchers may see the deletions before their streams end.
    timers.after(this.#chance.exponential(SEEN_MEAN_MS), () => {
      core.setServed("podprotectors", false);
      timers.after(this.#chance.exponential(UNSERVED_MEAN_MS), () => core.setServed("podprotectors", true));
    });
    this.#world.coverage.rule("backups: the CRD is deleted");
  }

  /** The core's etcd is restored to an empty state. */
  #emptyCore(core: ApiServer): void {
    const empty = this.#empty.get(core.name);
    if (empty === undefined) return;
    this.#world.note(`${core.name} is empty`);
    this.#world.coverage.rule("backups: a core is emptied");
    this.#world.denials.forget();
    core.etcd.restore(empty, this.#chance.chance(0.5));
    this.coreRestored(core);
    restartServer(this.#world, core, this.#chance);
    this.#tempt();
  }

  /** Releases the protector, which is asked for again soon. */
  #release(core: ApiServer, { name }: ProtectorPlan): void {
    this.#patienceMs.set(name, this.#chance.exponential(RELEASED_MEAN_MS));
    void releaseProtector(this.#world, core, name);
  }

  /** The processes that lead or serve can't reach this server for a while, or do not get its responses. */
  #cut(user: (typeof PROCESSES)[number], server: string): void {
    const { network, coverage, time } = this.#world;
    const isUnheard = this.#chance.chance(0.5);
    network.setLinks(user, server, { requestsLost: !isUnheard, responsesLost: isUnheard });
    coverage.rule(this.#world.cells.has(server) ? "backups: a cell out of reach" : "backups: a core out of reach");
    time.timers.after(this.#chance.exponential(CUT_MEAN_MS), () =>
      network.setLinks(user, server, { requestsLost: false, responsesLost: false }),
    );
  }

  /** Restarts some replicas or all, and perhaps aggregators, which then know nothing of what they have seen. */
  #restartProcesses(): void {
    const world = this.#world;
    if (!this.#chance.chance(RESTART_RATE)) return;
    const isAll = this.#chance.chance(EVERY_REPLICA_RATE);
    for (const replica of [...world.replicas]) {
      if (!isAll && this.#chance.chance(0.5)) continue;
      world.time.timers.after(this.#chance.exponential(CRASH_MEAN_MS), () => this.#crash(replica));
    }
    if (!this.#chance.chance(AGGREGATOR_RATE)) return;
    const cell = this.#chance.pick([...world.cells.values()]);
    world.time.timers.after(this.#chance.exponential(CRASH_MEAN_MS), () => {
      for (const node of cell.aggregators) node.kill();
      cell.aggregators = [];
      world.time.timers.after(this.#chance.exponential(DOWN_MEAN_MS), () =>
        cell.aggregators.push(world.startAggregator(cell)),
      );
    });
  }

  #crash(replica: Replica): void {
    const world = this.#world;
    if (!world.replicas.includes(replica)) return;
    replica.kill();
    world.replicas = world.replicas.filter((one) => one !== replica);
    const downMs = this.#chance.exponential(DOWN_MEAN_MS);
    world.time.timers.after(downMs, () => {
      world.replicas.push(world.startReplica());
      // A client asks a replica that has just started.
      this.#tempt();
    });
  }

  /** Clients delete pods now. */
  #tempt(): void {
    for (const cell of this.#world.cells.values())
      for (let left = this.#chance.between(1, 3); left > 0; left -= 1)
        this.#world.time.timers.after(this.#chance.exponential(TEMPTED_MEAN_MS), () => {
          void disrupt(this.#world, this.#chance, cell);
        });
  }

  /** Creates protectors again by hand that no component has created again in time. */
  #keep(): void {
    const { time, scenario } = this.#world;
    for (const loss of this.lost.values()) {
      const patienceMs = this.#patienceMs.get(loss.name) ?? PATIENCE_MS;
      const plan = scenario.protectors.find(({ name }) => name === loss.name);
      if (plan === undefined || time.elapsedMs - loss.atMs < patienceMs) continue;
      this.#patienceMs.delete(loss.name);
      this.#world.note(`backups: ${loss.name} is created again by hand`);
      this.#world.coverage.rule("backups: created again by hand");
      this.#world.createProtector(plan);
    }
    time.timers.after(KEEPER_EVERY_MS, () => this.#keep());
  }
}
