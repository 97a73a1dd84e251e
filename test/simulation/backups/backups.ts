/**
 * Protectors that are lost while those who knew them start anew (design 7): torn away one by one or with their kind or their core, released,
 * made again under the same name; the cells that hold their copies, and the cores, can't always be reached.
 */
import {
  GENERATOR_FINALIZER,
  SOURCE_GROUP_LABEL,
  SOURCE_KIND_LABEL,
  SOURCE_NAME_LABEL,
  SOURCE_RESOURCE_LABEL,
} from "../../../shared/schema/annotations.ts";
import type { Answered, InFlight } from "../actors/admission-requests.ts";
import { disrupt } from "../actors/clients.ts";
import { patch } from "../actors/operators.ts";
import { releaseProtector } from "../actors/release.ts";
import type { Replica } from "../actors/replica.ts";
import type { Backup, Json } from "../apiserver/etcd.ts";
import { metadataOf } from "../apiserver/objects.ts";
import type { ApiServer } from "../apiserver/server.ts";
import { restart } from "../faults/lost-history.ts";
import { GoneProtectors, isByHand, isMarked } from "../truth/lost-protectors.ts";
import type { Chance } from "../world/random.ts";
import type { ProtectorPlan } from "../world/scenario.ts";
import { NAMESPACE, PROTECTORS, type World } from "../world/world.ts";
import { checkCopies } from "./backup-check.ts";
import { StoredCopies } from "./stored-backups.ts";

/** What happens, and how often beside the others. */
const EVENTS = [
  ...["tearAway", "tearAway", "strip", "cascade", "wipe", "release", "release", "replace"],
  ...["cutCell", "cutCore"],
] as const;
const PROCESSES = ["aggregator", "webhook"] as const;
/** Where the generator keeps the protector: what is released, and what is made again, is its work (sources.ts). */
const EVENTS_OF_GENERATED = ["tearAway", "strip", "cascade", "cutCell", "cutCore"] as const;
const LAST = ["tearAway", "strip", "release", "replace", "cascade"] as const;
const LAST_OF_GENERATED = ["tearAway", "strip", "cascade"] as const;
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
/** Whoever keeps a protector makes it again after this, when no aggregator has: none has a copy. */
const PATIENCE_MS = 60_000;
const RELEASED_MEAN_MS = 8_000;
const REPLACED_MEAN_MS = 2_000;

export class SimulatedBackups {
  readonly stored: ReadonlyMap<string, StoredCopies>;
  readonly gone: GoneProtectors;
  readonly #world: World;
  readonly #chance: Chance;
  readonly #isGenerated: boolean;
  /** Of each core, before there was anything to protect. */
  readonly #empty: ReadonlyMap<string, Backup>;
  /** How long a protector of this name may be gone. */
  readonly #patienceMs = new Map<string, number>();

  constructor(world: World, chance: Chance) {
    this.#world = world;
    this.#chance = chance;
    const nowMs = (): number => world.time.elapsedMs;
    this.stored = new Map([...world.cells].map(([name, { server }]) => [name, new StoredCopies(server.etcd, nowMs)]));
    this.gone = new GoneProtectors(world, this.stored);
    this.#empty = new Map([...world.cores].map(([name, { etcd }]) => [name, etcd.backup()]));
    this.#isGenerated = world.scenario.features.generatorEveryMs > 0;
    if (!this.#isGenerated) this.#keep();
  }

  /** As the generator makes it, so that nothing but a release ends it. */
  static metadataOf(name: string): Json {
    const source = { [SOURCE_GROUP_LABEL]: "apps", [SOURCE_KIND_LABEL]: "Deployment" };
    const labels = { ...source, [SOURCE_RESOURCE_LABEL]: "deployments", [SOURCE_NAME_LABEL]: name };
    return { labels, finalizers: [GENERATOR_FINALIZER] };
  }

  started(replica: Replica): void {
    this.gone.started(replica);
  }

  answered(cell: string, flight: InFlight | undefined, answer: Answered): void {
    this.gone.answered(cell, flight, answer);
  }

  coreRestored(core: ApiServer): void {
    this.gone.coreRestored(core);
  }

  cellRestored(cell: string): void {
    const back = this.stored.get(cell)?.refresh() ?? [];
    if (back.length > 0) this.#world.coverage.rule("copies: a restored cell brings back old ones");
  }

  /** Begins with two aggregators in some cell, which make the first chunk both. */
  begin(): void {
    const cell = this.#chance.pick([...this.#world.cells.values()]);
    const [old] = cell.aggregators;
    cell.aggregators.push(this.#world.startAggregator(cell));
    this.#world.time.timers.after(this.#chance.exponential(DOWN_MEAN_MS) + DOWN_MEAN_MS, () => {
      old?.kill();
      cell.aggregators = cell.aggregators.filter((node) => node !== old);
    });
  }

  act(): void {
    this.#act(this.#chance.pick(this.#isGenerated ? EVENTS_OF_GENERATED : EVENTS));
  }

  /** Faults are over; what happens last has to be made good in the quiet. */
  last(): void {
    this.#act(this.#chance.pick(this.#isGenerated ? LAST_OF_GENERATED : LAST));
  }

  async check(): Promise<void> {
    await checkCopies(this.#world, this);
  }

  #act(event: (typeof EVENTS)[number]): void {
    const world = this.#world;
    const plan = this.#chance.pick(world.scenario.protectors);
    const core = world.coreOf(plan.name);
    world.note(`copies: ${event} ${plan.name}`);
    const actions: Readonly<Record<typeof event, () => void>> = {
      tearAway: () => this.#tear(core, plan.name),
      strip: () => this.#strip(core, plan.name),
      cascade: () => this.#cascade(core),
      wipe: () => this.#wipe(core),
      release: () => this.#release(core, plan),
      replace: () => this.#replace(core, plan.name),
      cutCell: () => this.#cut(this.#chance.pick(PROCESSES), this.#chance.pick([...world.cells.keys()])),
      cutCore: () => this.#cut(this.#chance.pick(PROCESSES), core.name),
    };
    actions[event]();
    if (event !== "cutCell") this.#startAnew();
  }

  /** Out of its core's storage, whatever holds it. One that is on its way out by a release is not lost. */
  #tear({ etcd }: ApiServer, name: string): void {
    const key = `podprotectors/${NAMESPACE}/${name}`;
    const stored = etcd.get(key);
    if (stored === undefined || isMarked(stored.value) || isByHand(stored.value)) return;
    etcd.delete(key);
    this.#world.coverage.rule("copies: torn away");
    this.#tempt();
  }

  /** Somebody takes off what holds it, and deletes it. */
  #strip(core: ApiServer, name: string): void {
    const stored = core.etcd.get(`podprotectors/${NAMESPACE}/${name}`);
    // The other mark is left.
    if (stored === undefined || isMarked(stored.value) || metadataOf(stored.value).labels === undefined) return;
    patch(this.#world, name, { metadata: { finalizers: null } });
    const path = `${PROTECTORS}/${name}`;
    void core.handle({ method: "DELETE", path, body: {}, contentType: "application/json", user: "operator" });
    this.#world.coverage.rule("copies: stripped and deleted");
    this.#tempt();
  }

  /** Somebody makes another one under its name, from nothing. */
  #replace(core: ApiServer, name: string): void {
    this.#patienceMs.set(name, this.#chance.exponential(REPLACED_MEAN_MS));
    this.#tear(core, name);
  }

  /** The kind is deleted with all protectors of a core, and is there again after a while. */
  #cascade(core: ApiServer): void {
    for (const { key } of core.etcd.range(`podprotectors/${NAMESPACE}/`)) this.#tear(core, key.split("/")[2] ?? "");
    const { timers } = this.#world.time;
    // Those who watch may see the deletions before their streams end.
    timers.after(this.#chance.exponential(SEEN_MEAN_MS), () => {
      core.serves("podprotectors", false);
      timers.after(this.#chance.exponential(UNSERVED_MEAN_MS), () => core.serves("podprotectors", true));
    });
    this.#world.coverage.rule("copies: the kind is deleted");
  }

  /** The core goes back to before there was anything. */
  #wipe(core: ApiServer): void {
    const empty = this.#empty.get(core.name);
    if (empty === undefined) return;
    this.#world.note(`${core.name} is empty`);
    this.#world.coverage.rule("copies: a core is emptied");
    this.#world.rejections.forget();
    core.etcd.restore(empty, this.#chance.chance(0.5));
    this.coreRestored(core);
    restart(this.#world, core, this.#chance);
    this.#tempt();
  }

  /** It is asked for again soon. */
  #release(core: ApiServer, { name }: ProtectorPlan): void {
    this.#patienceMs.set(name, this.#chance.exponential(RELEASED_MEAN_MS));
    void releaseProtector(this.#world, core, name);
  }

  /** Those who lead or serve can't reach this server, or are not answered by it, for a while. */
  #cut(user: (typeof PROCESSES)[number], server: string): void {
    const { network, coverage, time } = this.#world;
    const isUnheard = this.#chance.chance(0.5);
    network.set(user, server, { requestsLost: !isUnheard, responsesLost: isUnheard });
    coverage.rule(this.#world.cells.has(server) ? "copies: a cell out of reach" : "copies: a core out of reach");
    time.timers.after(this.#chance.exponential(CUT_MEAN_MS), () =>
      network.set(user, server, { requestsLost: false, responsesLost: false }),
    );
  }

  /** Some replicas or all, and perhaps aggregators: what they have seen is forgotten. */
  #startAnew(): void {
    const world = this.#world;
    if (!this.#chance.chance(RESTART_RATE)) return;
    const isAll = this.#chance.chance(EVERY_REPLICA_RATE);
    for (const replica of [...world.webhooks]) {
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
    if (!world.webhooks.includes(replica)) return;
    replica.kill();
    world.webhooks = world.webhooks.filter((one) => one !== replica);
    const downMs = this.#chance.exponential(DOWN_MEAN_MS);
    world.time.timers.after(downMs, () => {
      world.webhooks.push(world.startReplica());
      // Asked when it has just started.
      this.#tempt();
    });
  }

  /** Just now somebody wants pods gone. */
  #tempt(): void {
    for (const cell of this.#world.cells.values())
      for (let left = this.#chance.between(1, 3); left > 0; left -= 1)
        this.#world.time.timers.after(this.#chance.exponential(TEMPTED_MEAN_MS), () => {
          void disrupt(this.#world, this.#chance, cell);
        });
  }

  /** Whoever asks for the protectors makes one again that nobody else has made. */
  #keep(): void {
    const { time, scenario } = this.#world;
    for (const gone of this.gone.values()) {
      const patienceMs = this.#patienceMs.get(gone.name) ?? PATIENCE_MS;
      const plan = scenario.protectors.find(({ name }) => name === gone.name);
      if (plan === undefined || time.elapsedMs - gone.atMs < patienceMs) continue;
      this.#patienceMs.delete(gone.name);
      this.#world.note(`copies: ${gone.name} is made again`);
      this.#world.coverage.rule("copies: made again by hand");
      this.#world.createProtector(plan);
    }
    time.timers.after(KEEPER_EVERY_MS, () => this.#keep());
  }
}
