/**
 * A Deployment whose protector the generator keeps (design 7): it is scaled, deleted, or vanishes, and comes back; its protector is deleted,
 * altered, or vanishes; the generator dies in between. S11 and L7 are checked here, against what is stored.
 */
import { GENERATOR_FINALIZER, PROTECT_LABEL, RELEASED_ANNOTATION } from "../../../shared/schema/annotations.ts";
import type { Answered, InFlight } from "../actors/admission-requests.ts";
import { disrupt } from "../actors/clients.ts";
import type { GeneratorNode } from "../actors/generator-node.ts";
import { exemptUnderWay, patch } from "../actors/operators.ts";
import type { Replica } from "../actors/replica.ts";
import type { EtcdChange, Json } from "../apiserver/etcd.ts";
import { metadataOf, record, text } from "../apiserver/objects.ts";
import type { ApiServer } from "../apiserver/server.ts";
import { OWN_NAMESPACE } from "../judge/admission-rows.ts";
import { reservedUids } from "../truth/stored-protectors.ts";
import type { Chance } from "../world/random.ts";
import { PROTECTORS, type World } from "../world/world.ts";

const DEPLOYMENT = "web";
/** As the generator names it (design 12). */
export const SOURCED = `deployment-${DEPLOYMENT}`;
const DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments";
const KEY = `deployments/default/${DEPLOYMENT}`;
const PROTECTOR_KEY = `podprotectors/default/${SOURCED}`;
const COME_BACK_MEAN_MS = 8_000;
const SCALED_DOWN_MEAN_MS = 5_000;
const CRASH_RATE = 0.5;
const TEMPTED_MEAN_MS = 1_000;
const CRASH_MEAN_MS = 25;
const RESTART_MEAN_MS = 4_000;
/** A lease passes on although its holder lives: how often, and how long that one goes on. */
const STAYS_RATE = 0.3;
const STAYS_MEAN_MS = 20_000;
/** Replicas know of what is there for as long; and a while may pass until there is an end. */
const KNOWN_AFTER_MS = 20_000;
const FOR_LONG_MS = 600_000;
/** What happens, each as often. */
const EVENTS = [
  ...["scale", "deleteProtector", "vanishProtector", "lowerProtector", "stripProtector"],
  ...["vanishSource", "deleteSource"],
] as const;
/** Reasons for which a pod goes whether its protector is there or not. */
const WHATEVER = ["Finished", "Terminating", "Mirror", "Pending", "Forced"];

interface Gone {
  readonly atMs: number;
  readonly isReleased: boolean;
  /** It was there for so long that these replicas knew of it: those whose first list came in time. */
  readonly knowers: ReadonlySet<Replica>;
}

export class Sources {
  readonly #world: World;
  readonly #core: ApiServer;
  readonly #chance: Chance;
  readonly #total: number;
  readonly #spare: number;
  #node: GeneratorNode;
  #isDown = false;
  /** Those that lead no more, and may not know it. */
  readonly #stayed: GeneratorNode[] = [];
  #gone: Gone | undefined;
  #madeMs = 0;
  /** The Deployment that is there, or was last, is deleted and asks for no pods. */
  #mayRelease = false;

  constructor(world: World, core: ApiServer, chance: Chance) {
    const { cells, podsPerCell, protectors } = world.scenario;
    this.#world = world;
    this.#core = core;
    this.#chance = chance;
    this.#total = cells * podsPerCell;
    this.#spare = this.#total - (protectors[0]?.minAvailable ?? this.#total);
    core.etcd.observe((change) => this.#changed(change));
    this.#node = this.#start();
    this.#create();
  }

  act(): void {
    const { timers } = this.#world.time;
    const event = this.#chance.pick(EVENTS);
    this.#world.note(`generator: ${event}`);
    this.#act(event);
    if (this.#isDown || !this.#chance.chance(CRASH_RATE)) return;
    timers.after(this.#chance.exponential(CRASH_MEAN_MS), () => {
      if (this.#isDown) return;
      this.#end(this.#node);
      this.#isDown = true;
      timers.after(this.#chance.exponential(RESTART_MEAN_MS), () => {
        this.#node = this.#start();
        this.#isDown = false;
      });
    });
  }

  /** It dies, or has lost its lease and does not know it yet. */
  #end(node: GeneratorNode): void {
    const { coverage, time, faultsActive } = this.#world;
    if (faultsActive && this.#chance.chance(STAYS_RATE)) {
      coverage.rule("generator: two lead for a while");
      this.#stayed.push(node);
      time.timers.after(this.#chance.exponential(STAYS_MEAN_MS), () => node.kill());
    } else {
      coverage.rule("generator: killed");
      node.kill();
    }
  }

  /** Faults are over; what happens last has to be made good in the quiet. */
  last(): void {
    for (const node of this.#stayed) node.kill();
    this.#act(this.#chance.pick(EVENTS));
  }

  /** S11. */
  answered(cell: string, flight: InFlight | undefined, { allowed, reasons, by }: Answered): void {
    if (reasons.includes("Vanished") && !allowed) this.#world.coverage.rule("refused for a vanished protector");
    const gone = this.#gone;
    // Where replicas start anew, copies.ts knows what each of them can know.
    if (this.#world.copies !== undefined) return;
    if (!allowed || flight === undefined || gone === undefined || gone.isReleased) return;
    if (by === undefined || !gone.knowers.has(by)) return;
    if (!flight.key.startsWith("pods/default/")) return;
    if (flight.forced || flight.askedMs < gone.atMs || reasons.some((reason) => WHATEVER.includes(reason))) return;
    const wanted = { labels: {}, minReadySeconds: 0 };
    if (this.#world.cells.get(cell)?.pods.isAvailableNow(flight.uid, wanted, Number.POSITIVE_INFINITY) !== true) return;
    this.#world.violation(
      "S11",
      `${flight.key} was let go (${reasons.join() || "-"}) while its protector had vanished`,
    );
  }

  /** L7, once everything is quiet for long. */
  check(): void {
    const source = this.#core.etcd.get(KEY)?.value;
    const protector = this.#core.etcd.get(PROTECTOR_KEY)?.value;
    const wanted = Number(record(source?.spec).replicas) - this.#spare;
    const complain = (what: string): void => this.#world.violation("L7", what);
    if (source === undefined || metadataOf(source).deletionTimestamp !== undefined)
      complain("the Deployment was deleted, asks for no pods, and is held for ever");
    else if (!finalizersOf(source).includes(GENERATOR_FINALIZER)) complain("nothing holds the Deployment");
    else if (protector === undefined) complain("the protector has not come back");
    else if (metadataOf(protector).deletionTimestamp !== undefined) complain("the protector is still on its way out");
    else if (!finalizersOf(protector).includes(GENERATOR_FINALIZER)) complain("nothing holds the protector");
    else if (record(protector.spec).minAvailable !== Math.max(0, wanted))
      complain(`the protector keeps ${String(record(protector.spec).minAvailable)}, its Deployment needs ${wanted}`);
  }

  #act(event: (typeof EVENTS)[number]): void {
    const { etcd } = this.#core;
    switch (event) {
      case "scale":
        this.#scale(this.#chance.between(Math.ceil(this.#total / 2), this.#total));
        return;
      case "deleteProtector":
        this.#call("DELETE", `${PROTECTORS}/${SOURCED}`, {});
        return;
      case "vanishProtector":
        etcd.delete(PROTECTOR_KEY);
        this.#tempt();
        return;
      case "lowerProtector":
        patch(this.#world, SOURCED, { spec: { minAvailable: 0 } });
        return;
      case "stripProtector":
        this.#strip(etcd.get(PROTECTOR_KEY)?.value ?? {});
        return;
      case "vanishSource":
        etcd.delete(KEY);
        return;
      case "deleteSource":
        this.#call("DELETE", `${DEPLOYMENTS}/${DEPLOYMENT}`, {});
        this.#world.time.timers.after(this.#chance.exponential(SCALED_DOWN_MEAN_MS), () => {
          if (metadataOf(etcd.get(KEY)?.value ?? {}).deletionTimestamp !== undefined) this.#scale(0);
        });
    }
  }

  /** Of its marks it loses one kind: without both it is one that was made by hand, which anybody may delete. */
  #strip(protector: Json): void {
    const isWhole = metadataOf(protector).labels !== undefined && finalizersOf(protector).length > 0;
    const isNameless = this.#chance.chance(0.5);
    if (!isWhole) return;
    const metadata = isNameless ? { labels: null, ownerReferences: null } : { finalizers: null };
    patch(this.#world, SOURCED, { metadata });
  }

  /** Just now somebody wants pods gone. */
  #tempt(): void {
    for (const cell of this.#world.cells.values())
      for (let left = this.#chance.between(1, 3); left > 0; left -= 1)
        this.#world.time.timers.after(this.#chance.exponential(TEMPTED_MEAN_MS), () => {
          void disrupt(this.#world, this.#chance, cell);
        });
  }

  #scale(replicas: number): void {
    const stored = this.#core.etcd.get(KEY);
    // Whoever deletes it has scaled it to nothing, and leaves it there.
    if (stored === undefined || record(stored.value.spec).replicas === 0) return;
    this.#call("PATCH", `${DEPLOYMENTS}/${DEPLOYMENT}`, { spec: { replicas } });
  }

  #start(): GeneratorNode {
    return this.#world.startGenerator(this.#core);
  }

  #create(): void {
    const { minReadySeconds = 0, labels = {} } = this.#world.scenario.protectors[0] ?? {};
    const strategy = { type: "RollingUpdate", rollingUpdate: { maxUnavailable: this.#spare, maxSurge: 0 } };
    const template = { metadata: { labels }, spec: { containers: [{ name: "app", image: "app:1" }] } };
    const spec = { replicas: this.#total, minReadySeconds, selector: { matchLabels: labels }, strategy, template };
    const metadata = { name: DEPLOYMENT, labels: { [PROTECT_LABEL]: "true" } };
    this.#call("POST", DEPLOYMENTS, { apiVersion: "apps/v1", kind: "Deployment", metadata, spec });
  }

  #changed(change: EtcdChange): void {
    if (change.key === KEY) this.#sourceChanged(change);
    else if (change.key === PROTECTOR_KEY) this.#protectorChanged(change);
  }

  #sourceChanged({ before, after }: EtcdChange): void {
    if (after !== undefined) {
      const isOver = metadataOf(after.value).deletionTimestamp !== undefined && record(after.value.spec).replicas === 0;
      if (before === undefined || isOver) this.#mayRelease = isOver;
      return;
    }
    this.#world.time.timers.after(this.#chance.exponential(COME_BACK_MEAN_MS), () => this.#create());
  }

  #protectorChanged({ before, after }: EtcdChange): void {
    const { exemptions, time, violation } = this.#world;
    const nowMs = time.elapsedMs;
    if (after !== undefined) {
      if (isMarked(after.value) && !isMarked(before?.value ?? {}) && !this.#mayRelease)
        violation.call(this.#world, "L7", "a protector is released that is still asked for");
      if (before === undefined) {
        if (this.#gone === undefined || this.#gone.isReleased) this.#isNew();
        this.#gone = undefined;
        this.#madeMs = nowMs;
      }
      return;
    }
    if (before === undefined) return;
    const isReleased = isMarked(before.value) || this.#isRecorded(text(metadataOf(before.value).uid) ?? "");
    const wasKnown = nowMs - this.#madeMs > KNOWN_AFTER_MS;
    const knowers = new Set(wasKnown ? this.#world.webhooks.filter(({ serving }) => serving) : []);
    this.#gone = { atMs: nowMs, isReleased, knowers };
    if (!isReleased) return;
    for (const [cell, uids] of reservedUids(before)) for (const uid of uids) exemptions.add(SOURCED, cell, uid);
    exemptions.uncertain(SOURCED, FOR_LONG_MS);
  }

  /** Nothing protected these pods before. */
  #isNew(): void {
    exemptUnderWay(this.#world, SOURCED);
    this.#world.exemptions.uncertain(SOURCED);
  }

  #isRecorded(uid: string): boolean {
    const segments = this.#core.etcd.range(`configmaps/${OWN_NAMESPACE}/`);
    return segments.some(({ value }) => record(value.data)[uid] !== undefined);
  }

  #call(method: string, path: string, body: Json): void {
    const contentType = method === "PATCH" ? "application/merge-patch+json" : "application/json";
    void this.#core.handle({ method, path, body, contentType, user: "operator" });
  }
}

function finalizersOf(object: Json): readonly unknown[] {
  const { finalizers } = metadataOf(object);
  return Array.isArray(finalizers) ? finalizers : [];
}

function isMarked(object: Json): boolean {
  return record(metadataOf(object).annotations)[RELEASED_ANNOTATION] !== undefined;
}
