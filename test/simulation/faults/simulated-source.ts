/**
 * A Deployment as protection source, whose protector the generator makes (docs/design.md#generator). The Deployment is
 * scaled, deleted, or lost, and comes back; its protector is deleted, altered, or lost; the generator dies in between.
 * Checks S11 and L7 against what the core stores.
 */
import { GENERATOR_FINALIZER, PROTECT_LABEL, RELEASED_ANNOTATION } from "../../../shared/schema/annotations.ts";
import type { InFlightRequest, ObservedResponse } from "../actors/admission-requests.ts";
import { disrupt } from "../actors/clients.ts";
import type { GeneratorNode } from "../actors/generator-node.ts";
import { exemptInFlight, patchProtector } from "../actors/operators.ts";
import type { Replica } from "../actors/replica.ts";
import type { EtcdChange, Json } from "../apiserver/etcd.ts";
import { metadataOf, record, text } from "../apiserver/objects.ts";
import type { ApiServer } from "../apiserver/server.ts";
import type { Chance } from "../scenario/random.ts";
import { OWN_NAMESPACE, PROTECTORS } from "../scenario/scenario.ts";
import { promises, reservedUids } from "../truth/stored-protectors.ts";
import type { World } from "../world/world.ts";

const DEPLOYMENT = "web";
/** The protector's name, as the generator chooses it (docs/design.md#upstream-conventions). */
const SOURCED_PROTECTOR = `deployment-${DEPLOYMENT}`;
const DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments";
const KEY = `deployments/default/${DEPLOYMENT}`;
const PROTECTOR_KEY = `podprotectors/default/${SOURCED_PROTECTOR}`;
const COME_BACK_MEAN_MS = 8_000;
const SCALED_DOWN_MEAN_MS = 5_000;
const CRASH_RATE = 0.5;
const TEMPTED_MEAN_MS = 1_000;
const CRASH_MEAN_MS = 25;
const RESTART_MEAN_MS = 4_000;
/** Share of the generators that continue after they have lost their lease, and for how long. */
const STAYS_RATE = 0.3;
const STAYS_MEAN_MS = 20_000;
/** After this time every replica knows what exists. */
const KNOWN_AFTER_MS = 20_000;
const FOR_LONG_MS = 600_000;
/** Equally frequent. */
const EVENTS = [
  ...["scale", "deleteProtector", "loseProtector", "lowerProtector", "stripProtector"],
  ...["loseSource", "deleteSource"],
] as const;
/** Reasons for which a pod is allowed whether its protector exists or not. */
const WHATEVER = ["Finished", "Terminating", "Mirror", "Pending", "Forced"];

interface Loss {
  readonly atMs: number;
  /** Before the loss, or since: its Deployment may ask for no pods meanwhile. */
  readonly isReleased: boolean;
  readonly stored: NonNullable<EtcdChange["before"]>;
  /** False where the last stored version has a minimum of 0. */
  readonly promises: boolean;
  /** Replicas that knew the protector: their first list was in time, and it had existed for long enough. */
  readonly knowers: ReadonlySet<Replica>;
}

export class SimulatedSource {
  readonly #world: World;
  readonly #core: ApiServer;
  readonly #chance: Chance;
  readonly #total: number;
  readonly #spare: number;
  #node: GeneratorNode;
  #isDown = false;
  /** Generators that lost their lease and may not know it. */
  readonly #stayed: GeneratorNode[] = [];
  #loss: Loss | undefined;
  /** Since when the protector exists with a minimum above 0. */
  #promisedMs = 0;
  /** The current Deployment, or the last one, is deleted and asks for no pods. */
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

  playEvent(): void {
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

  /** The generator dies, or continues without its lease. */
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

  /** The last fault. The quiet that follows has to repair it. */
  playLast(): void {
    for (const node of this.#stayed) node.kill();
    this.#act(this.#chance.pick(EVENTS));
  }

  /** Checks S11 at each response. */
  responded(cell: string, inFlight: InFlightRequest | undefined, { allowed, reasons, by }: ObservedResponse): void {
    if (reasons.includes("Vanished") && !allowed) this.#world.coverage.rule("denied for a lost protector");
    const loss = this.#loss;
    // Where replicas restart, `judge/lost-protectors.ts` knows what each of them can know.
    if (this.#world.backups !== undefined) return;
    if (!allowed || inFlight === undefined || loss === undefined || loss.isReleased) return;
    if (by === undefined || !loss.promises || !loss.knowers.has(by)) return;
    if (!inFlight.key.startsWith("pods/default/")) return;
    if (inFlight.forced || inFlight.askedMs < loss.atMs || reasons.some((reason) => WHATEVER.includes(reason))) return;
    const truth = this.#world.cells.get(cell);
    const stored = truth?.admission.stored(inFlight);
    // Reviewed at a version that can't commit any more.
    if (inFlight.revision !== undefined && inFlight.revision !== stored?.revision) return;
    // A pod that was relabelled is none of the Deployment's.
    const wanted = { labels: { app: "web" }, minReadySeconds: 0 };
    if (truth?.pods.isAvailableNow(inFlight.uid, wanted, Number.POSITIVE_INFINITY) !== true) return;
    this.#world.violation("S11", `${inFlight.key} was allowed (${reasons.join() || "-"}) while its protector was lost`);
  }

  /** Checks L7 after a long quiet. */
  check(): void {
    const source = this.#core.etcd.get(KEY)?.value;
    const protector = this.#core.etcd.get(PROTECTOR_KEY)?.value;
    const wanted = Number(record(source?.spec).replicas) - this.#spare;
    const complain = (what: string): void => this.#world.violation("L7", what);
    if (source === undefined || metadataOf(source).deletionTimestamp !== undefined)
      complain("the Deployment was deleted, asks for no pods, and its finalizer stays");
    else if (!finalizersOf(source).includes(GENERATOR_FINALIZER)) complain("the Deployment has no finalizer");
    else if (protector === undefined) complain("the protector has not come back");
    else if (metadataOf(protector).deletionTimestamp !== undefined) complain("the protector is still terminating");
    else if (!finalizersOf(protector).includes(GENERATOR_FINALIZER)) complain("the protector has no finalizer");
    else if (record(protector.spec).minAvailable !== Math.max(0, wanted))
      complain(`minAvailable is ${String(record(protector.spec).minAvailable)}, its Deployment needs ${wanted}`);
  }

  #act(event: (typeof EVENTS)[number]): void {
    const { etcd } = this.#core;
    switch (event) {
      case "scale":
        this.#scale(this.#chance.between(Math.ceil(this.#total / 2), this.#total));
        return;
      case "deleteProtector":
        this.#call("DELETE", `${PROTECTORS}/${SOURCED_PROTECTOR}`, {});
        return;
      case "loseProtector":
        etcd.delete(PROTECTOR_KEY);
        this.#tempt();
        return;
      case "lowerProtector":
        patchProtector(this.#world, SOURCED_PROTECTOR, { spec: { minAvailable: 0 } });
        return;
      case "stripProtector":
        this.#strip(etcd.get(PROTECTOR_KEY)?.value ?? {});
        return;
      case "loseSource":
        etcd.delete(KEY);
        return;
      case "deleteSource":
        this.#call("DELETE", `${DEPLOYMENTS}/${DEPLOYMENT}`, {});
        this.#world.time.timers.after(this.#chance.exponential(SCALED_DOWN_MEAN_MS), () => {
          if (metadataOf(etcd.get(KEY)?.value ?? {}).deletionTimestamp !== undefined) this.#scale(0);
        });
    }
  }

  /**
   * Removes one kind of the generator's marks. Without both kinds the protector counts as made by hand, and anybody may
   * delete it.
   */
  #strip(protector: Json): void {
    const isWhole = metadataOf(protector).labels !== undefined && finalizersOf(protector).length > 0;
    const isNameless = this.#chance.chance(0.5);
    if (!isWhole) return;
    const metadata = isNameless ? { labels: null, ownerReferences: null } : { finalizers: null };
    patchProtector(this.#world, SOURCED_PROTECTOR, { metadata });
  }

  /** Clients delete pods while the protector is lost. */
  #tempt(): void {
    for (const cell of this.#world.cells.values())
      for (let left = this.#chance.between(1, 3); left > 0; left -= 1)
        this.#world.time.timers.after(this.#chance.exponential(TEMPTED_MEAN_MS), () => {
          void disrupt(this.#world, this.#chance, cell);
        });
  }

  #scale(replicas: number): void {
    const stored = this.#core.etcd.get(KEY);
    // A client that deletes the Deployment has scaled it to zero, and it stays there.
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
    else if (change.key.startsWith(`configmaps/${OWN_NAMESPACE}/`)) this.#registerChanged();
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
    const { time, violation } = this.#world;
    const nowMs = time.elapsedMs;
    if (after !== undefined) {
      if (isMarked(after.value) && !isMarked(before?.value ?? {}) && !this.#mayRelease)
        violation.call(this.#world, "L7", "a protector is released although its Deployment still asks for it");
      if (before === undefined) {
        if (!this.#isKnownToAll()) this.#isNew();
        this.#loss = undefined;
      }
      // A replica may trust its cache for a while, where nothing was promised as well.
      if (before === undefined || (!promises(before) && promises(after))) this.#promisedMs = nowMs;
      return;
    }
    if (before === undefined) return;
    const isReleased = isMarked(before.value) || this.#isRecorded(before);
    const wasKnown = nowMs - this.#promisedMs > KNOWN_AFTER_MS;
    const knowers = new Set(wasKnown ? this.#world.replicas.filter(({ serving }) => serving) : []);
    this.#loss = { atMs: nowMs, isReleased, stored: before, promises: promises(before), knowers };
    if (isReleased) this.#released(before);
  }

  #registerChanged(): void {
    const loss = this.#loss;
    if (loss === undefined || loss.isReleased || !this.#mayRelease || !this.#isRecorded(loss.stored)) return;
    this.#loss = { ...loss, isReleased: true };
    this.#released(loss.stored);
  }

  #released(stored: Loss["stored"]): void {
    const { exemptions } = this.#world;
    for (const [cell, uids] of reservedUids(stored))
      for (const uid of uids) exemptions.add(SOURCED_PROTECTOR, cell, uid);
    exemptions.uncertain(SOURCED_PROTECTOR, FOR_LONG_MS);
  }

  /** True when every replica has enforced the protector while it was lost. */
  #isKnownToAll(): boolean {
    const loss = this.#loss;
    if (loss === undefined || loss.isReleased || !loss.promises) return false;
    // Where replicas restart, `judge/lost-protectors.ts` knows what each of them can know.
    return this.#world.backups !== undefined || this.#world.replicas.every((replica) => loss.knowers.has(replica));
  }

  /** Nothing protected these pods before, or not every replica did. */
  #isNew(): void {
    exemptInFlight(this.#world, SOURCED_PROTECTOR);
    this.#world.exemptions.uncertain(SOURCED_PROTECTOR);
  }

  #isRecorded({ value: protector }: Loss["stored"]): boolean {
    const uid = text(metadataOf(protector).uid) ?? "";
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
