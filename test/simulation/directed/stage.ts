/**
 * A small world without random faults, in which a scene says what happens and when. Scenes show the worth of rules that
 * random seeds rarely show. The checks are those of every other run.
 */

import type { Replica } from "../actors/replica.ts";
import type { Json } from "../apiserver/etcd.ts";
import { metadataOf, text } from "../apiserver/objects.ts";
import type { SimulatedResponse } from "../apiserver/responses.ts";
import type { Features } from "../scenario/features.ts";
import { Chance } from "../scenario/random.ts";
import { drawScenario, FAULT_KINDS, type ProtectorPlan, type Scenario } from "../scenario/scenario.ts";
import type { SimulatedCell } from "../world/cell.ts";
import { quiet } from "../world/run.ts";
import { type Violation, World } from "../world/world.ts";

export interface ScenePlan {
  /** Number of pods in each cell. */
  readonly pods: number;
  /** Default 1. Scenes act in the first one. */
  readonly cells?: number;
  readonly protectors: readonly (Pick<ProtectorPlan, "minAvailable"> & Partial<ProtectorPlan>)[];
  readonly webhooks?: number;
  /** The protectors exist from the beginning; default true. */
  readonly isProtected?: boolean;
  /** Default: none. */
  readonly features?: Partial<Features>;
}

const WARM_UP_MS = 40_000;
const SLOW_LINK_MS = 200;
const PODS = "/api/v1/namespaces/default/pods";
export const CELL = "cell-1";

function scenarioOf({ pods, cells = 1, protectors, webhooks = 1, features }: ScenePlan): Scenario {
  const drawn = drawScenario(1, new Chance(1), new Set(FAULT_KINDS));
  const names = ["web", "web-too"];
  const plans = protectors.map((plan, index) => ({
    ...{ name: names[index] ?? `web-${index}`, core: "core", labels: { app: "web" }, minReadySeconds: 0 },
    ...{ compactThreshold: 100, unhealthyPodPolicy: "AlwaysAllow" as const },
    ...plan,
  }));
  const times = { settleMs: 75_000, requestTimeoutMs: 60_000, rateMs: 0 };
  const wanted = { ...drawn.features, ...features };
  return { ...drawn, ...times, cells, webhooks, podsPerCell: pods, protectors: plans, features: wanted };
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
    stage.commitAfter(1);
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

  /** Keys of the living pods, in a fixed order. */
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
    this.world.overrides.watchLagMs.set(server, ms);
  }

  /** Makes the link to the core so slow that the writes of `user` come after everything else in progress. */
  slowCore(user: "webhook" | "aggregator"): void {
    this.world.network.setLinks(user, "core", { fixedDelayMs: SLOW_LINK_MS });
  }

  /** How long allowed disruptions take to commit from here on; undefined: they never commit. */
  commitAfter(ms: number | undefined): void {
    this.world.overrides.commitDelayMs.set(CELL, ms);
  }

  /** Resolves with the status code. */
  async deleted(key: string): Promise<number> {
    return (await this.#call("DELETE", `${PODS}/${nameOf(key)}`, {})).status;
  }

  deletePod(key: string): void {
    void this.#call("DELETE", `${PODS}/${nameOf(key)}`, {});
  }

  evict(key: string): void {
    void this.evicted(key);
  }

  /** Resolves with the status code. */
  async evicted(key: string): Promise<number> {
    const body = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name: nameOf(key), namespace: "default" } };
    return (await this.#call("POST", `${PODS}/${nameOf(key)}/eviction`, body)).status;
  }

  changeImage(key: string, image: string): void {
    void this.cell.server.handle({
      ...{ method: "PATCH", path: `${PODS}/${nameOf(key)}`, user: "client" },
      ...{ contentType: "application/strategic-merge-patch+json" },
      body: { spec: { containers: [{ name: "app", image }] } },
    });
  }

  /** Stops the aggregators until the end of the scene. They keep their memory. */
  pauseAggregators(): void {
    for (const node of this.cell.aggregators) node.pause();
  }

  /** Admission requests go to one replica from here on. */
  useOnly(replica: Replica | undefined): void {
    if (replica !== undefined) this.world.replicas = [replica];
  }

  create(name: string): string {
    const metadata = { name, labels: { app: "web", tier: "a" } };
    const spec = { nodeName: "node", containers: [{ name: "app", image: "app:1" }] };
    void this.#call("POST", PODS, { metadata, spec, status: { phase: "Pending" } });
    return `pods/default/${name}`;
  }

  setReady(key: string, isReady: boolean): void {
    this.cell.kubelet.setReady(key, isReady);
  }

  /** The pod runs from here on, and is ready. */
  start(key: string): void {
    this.cell.kubelet.start(key);
  }

  /** Changes the pod without any effect on its availability. */
  annotatePod(key: string): void {
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

  /** Ends the scene: nothing more happens, and L1 to L3 are checked. */
  async end(): Promise<void> {
    this.world.overrides.watchLagMs.clear();
    this.world.overrides.commitDelayMs.clear();
    if (this.violations.length === 0) await quiet(this.world);
  }

  #call(method: string, path: string, body: Json): Promise<SimulatedResponse> {
    return this.cell.server.handle({ method, path, body, contentType: "application/json", user: "client" });
  }
}

function nameOf(key: string): string {
  return key.split("/")[2] ?? "";
}
