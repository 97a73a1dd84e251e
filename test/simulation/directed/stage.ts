/**
 * A small world of the shipping code without chance faults, in which a scene says what happens and when: for rules that a random seed
 * rarely shows the worth of. Checks are the same as in every other run.
 */

import type { Replica } from "../actors/replica.ts";
import type { Json } from "../apiserver/etcd.ts";
import { metadataOf, text } from "../apiserver/objects.ts";
import type { SimulatedReply } from "../apiserver/responses.ts";
import type { Features } from "../world/features.ts";
import { Chance } from "../world/random.ts";
import { quiet } from "../world/run.ts";
import { drawScenario, FAULT_KINDS, type ProtectorPlan, type Scenario } from "../world/scenario.ts";
import { type SimulatedCell, type Violation, World } from "../world/world.ts";

export interface ScenePlan {
  /** In the one cell there is. */
  readonly pods: number;
  readonly protectors: readonly (Pick<ProtectorPlan, "minAvailable"> & Partial<ProtectorPlan>)[];
  readonly webhooks?: number;
  /** The protectors are there from the beginning; default true. */
  readonly isProtected?: boolean;
  /** Default: none. */
  readonly features?: Partial<Features>;
}

const WARM_UP_MS = 40_000;
const SLOW_LINK_MS = 200;
const PODS = "/api/v1/namespaces/default/pods";
export const CELL = "cell-1";

function scenarioOf({ pods, protectors, webhooks = 1, features }: ScenePlan): Scenario {
  const drawn = drawScenario(1, new Chance(1), new Set(FAULT_KINDS));
  const names = ["web", "web-too"];
  const plans = protectors.map((plan, index) => ({
    ...{ name: names[index] ?? `web-${index}`, core: "core", labels: { app: "web" }, minReadySeconds: 0 },
    ...{ compactThreshold: 100, unhealthyPodPolicy: "AlwaysAllow" as const },
    ...plan,
  }));
  const times = { settleMs: 75_000, requestTimeoutMs: 60_000, rateMs: 0 };
  const wanted = { ...drawn.features, ...features };
  return { ...drawn, ...times, cells: 1, webhooks, podsPerCell: pods, protectors: plans, features: wanted };
}

export class SceneStage {
  readonly world: World;
  readonly cell: SimulatedCell;

  static async open(plan: ScenePlan, trace = false, seed = 1): Promise<SceneStage> {
    const world = new World(seed, { scenario: scenarioOf(plan), trace, isProtected: plan.isProtected ?? true });
    const stage = new SceneStage(world);
    stage.watchLag("core", 1);
    stage.watchLag("core-2", 1);
    stage.watchLag(CELL, 1);
    stage.commits(1);
    await stage.pass(WARM_UP_MS);
    return stage;
  }

  private constructor(world: World) {
    const cell = world.cells.get(CELL);
    if (cell === undefined) throw new Error("the world has no cell");
    this.world = world;
    this.cell = cell;
  }

  get violations(): readonly Violation[] {
    return this.world.violations;
  }

  pass(ms: number): Promise<void> {
    return this.world.time.advance(ms);
  }

  /** Keys of the pods that live, in a fixed order. */
  pods(): string[] {
    return this.cell.server.etcd
      .range("pods/default/")
      .filter(({ value }) => metadataOf(value).deletionTimestamp === undefined)
      .map(({ key }) => key);
  }

  /** The pod at `index` of {@link pods}. */
  pod(index: number): string {
    const key = this.pods()[index];
    if (key === undefined) throw new Error(`there is no pod ${index}`);
    return key;
  }

  watchLag(server: string, ms: number): void {
    this.world.knobs.watchLagMs.set(server, ms);
  }

  /** So slow a link that what `user` writes to the core comes after everything else that is under way. */
  slowCore(user: "webhook" | "aggregator"): void {
    this.world.network.set(user, "core", { fixedDelayMs: SLOW_LINK_MS });
  }

  /** How long allowed deletions take from here on; undefined: they never commit. */
  commits(ms: number | undefined): void {
    this.world.knobs.commitDelayMs.set(CELL, ms);
  }

  /** Resolves with the status code. */
  async removed(key: string): Promise<number> {
    return (await this.#call("DELETE", `${PODS}/${nameOf(key)}`, {})).status;
  }

  remove(key: string): void {
    void this.#call("DELETE", `${PODS}/${nameOf(key)}`, {});
  }

  evict(key: string): void {
    const body = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name: nameOf(key), namespace: "default" } };
    void this.#call("POST", `${PODS}/${nameOf(key)}/eviction`, body);
  }

  /** Until the end of the scene they do nothing, and hold what they know. */
  pauseAggregators(): void {
    for (const node of this.cell.aggregators) node.pause();
  }

  /** The Service knows one replica from here on. */
  onlyAsks(replica: Replica | undefined): void {
    if (replica !== undefined) this.world.webhooks = [replica];
  }

  create(name: string): string {
    const metadata = { name, labels: { app: "web", tier: "a" } };
    const spec = { nodeName: "node", containers: [{ name: "app", image: "app:1" }] };
    void this.#call("POST", PODS, { metadata, spec, status: { phase: "Pending" } });
    return `pods/default/${name}`;
  }

  ready(key: string, isReady: boolean): void {
    this.cell.kubelet.setReady(key, isReady);
  }

  /** Something that has no say in availability. */
  touch(key: string): void {
    const { etcd } = this.cell.server;
    const found = etcd.get(key);
    if (found === undefined) throw new Error(`there is no ${key}`);
    const annotations = { touched: String(this.world.time.elapsedMs) };
    etcd.put(key, { ...found.value, metadata: { ...metadataOf(found.value), annotations } }, found.revision);
  }

  uid(key: string): string {
    return text(metadataOf(this.cell.server.etcd.get(key)?.value ?? {}).uid) ?? "";
  }

  edit(protector: string, spec: Json): void {
    void this.world.coreOf(protector).handle({
      ...{ method: "PATCH", contentType: "application/merge-patch+json", user: "operator", body: { spec } },
      path: `/apis/podseidon.kubewharf.io/v1alpha1/namespaces/default/podprotectors/${protector}`,
    });
  }

  /** Nothing more happens: L1 to L3 are checked. */
  async rest(): Promise<void> {
    this.world.knobs.watchLagMs.clear();
    this.world.knobs.commitDelayMs.clear();
    if (this.violations.length === 0) await quiet(this.world);
  }

  #call(method: string, path: string, body: Json): Promise<SimulatedReply> {
    return this.cell.server.handle({ method, path, body, contentType: "application/json", user: "client" });
  }
}

function nameOf(key: string): string {
  return key.split("/")[2] ?? "";
}
