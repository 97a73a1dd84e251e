/**
 * What one accident does to its world, and how it is undone afterwards. The counterpart of `directed/stage.ts` in a
 * world with other traffic.
 */
import { sleep } from "../../../shared/runtime/clock.ts";
import type { Json } from "../apiserver/etcd.ts";
import { metadataOf, text } from "../apiserver/objects.ts";
import type { Chance } from "../scenario/random.ts";
import { NAMESPACE } from "../scenario/scenario.ts";
import { isTrulyAvailable } from "../truth/pod-truth.ts";
import { parseStored, wantedOf } from "../truth/stored-protectors.ts";
import type { SimulatedCell } from "../world/cell.ts";
import type { World } from "../world/world.ts";

const PODS = `/api/v1/namespaces/${NAMESPACE}/pods`;
/** Deletions beyond what can be spared, so that a wrong one shows. */
const TOO_MANY = 3;
/** A hold lasts for a settle period and the time of requests in flight. */
const POLL_MS = 1_000;
const MOST_POLLS = 100;

/** Thrown when faults have ended during the accident, so that the rest of it does not happen. */
export class FaultsEnded extends Error {}

export class AccidentStage {
  readonly world: World;
  readonly chance: Chance;
  /** The cell of the accident. */
  readonly cell: SimulatedCell;
  readonly #undone: (() => void)[] = [];

  constructor(world: World, chance: Chance) {
    this.world = world;
    this.chance = chance;
    this.cell = chance.pick([...world.cells.values()]);
  }

  /** Rejects with {@link FaultsEnded} when faults have ended meanwhile. */
  async pass(ms: number): Promise<void> {
    await sleep(this.world.time, ms);
    if (!this.world.faultsActive) throw new FaultsEnded();
  }

  /** Waits until every protector counts every cell and no cell is on hold, or for long enough. */
  async untilCounted(): Promise<void> {
    for (let left = MOST_POLLS; left > 0 && !this.#areCounted(); left -= 1) await this.pass(POLL_MS);
  }

  /** Calls `act` when the accident ends, however it ends. */
  onEnd(act: () => void): void {
    this.#undone.push(act);
  }

  /** Undoes everything that lasts. */
  end(): void {
    for (const act of this.#undone.splice(0).reverse()) act();
  }

  watchLag(server: string, ms: number): void {
    const { watchLagMs } = this.world.overrides;
    watchLagMs.set(server, ms);
    this.onEnd(() => watchLagMs.delete(server));
  }

  /** How long allowed deletions of the cell take to commit from here on. */
  commitAfter(ms: number): void {
    const { commitDelayMs } = this.world.overrides;
    commitDelayMs.set(this.cell.name, ms);
    this.onEnd(() => commitDelayMs.delete(this.cell.name));
  }

  /** Deletions commit as usual again. */
  commitAsUsual(): void {
    this.world.overrides.commitDelayMs.delete(this.cell.name);
  }

  /** Each message of `user` and `server` takes so long. */
  slowLinks(user: "webhook" | "aggregator", server: string, fixedDelayMs: number): void {
    this.world.network.setLinks(user, server, { fixedDelayMs });
    this.onEnd(() => this.world.network.heal());
  }

  /** Requests of `user` do not arrive at `server`. */
  loseRequests(user: "webhook" | "aggregator", server: string): void {
    this.world.network.setLinks(user, server, { requestsLost: true });
    this.onEnd(() => this.world.network.heal());
  }

  /** Stops aggregators until the accident ends. They keep their memory. */
  pauseAggregators(cells: Iterable<SimulatedCell> = [this.cell]): void {
    for (const node of [...cells].flatMap(({ aggregators }) => aggregators)) {
      node.pause();
      this.onEnd(() => node.resume());
    }
  }

  /** Keys of the cell's pods that are available now, youngest last. */
  pods(cell = this.cell): string[] {
    return cell.server.etcd
      .range(`pods/${NAMESPACE}/`)
      .filter(({ value }) => isTrulyAvailable(value, { labels: { app: "web" }, minReadySeconds: 0 }, 0))
      .sort((a, b) => createdOf(a.value) - createdOf(b.value))
      .map(({ key }) => key);
  }

  /** An available pod; throws {@link FaultsEnded} when there is none. */
  somePod(): string {
    const pods = this.pods();
    if (pods.length === 0) throw new FaultsEnded();
    return this.chance.pick(pods);
  }

  uid(key: string): string | undefined {
    return text(metadataOf(this.cell.server.etcd.get(key)?.value ?? {}).uid);
  }

  setReady(key: string, isReady: boolean): void {
    this.cell.kubelet.setReady(key, isReady);
  }

  /** Changes the pod without any effect on its availability. */
  annotatePod(key: string): void {
    const { etcd } = this.cell.server;
    const found = etcd.get(key);
    if (found === undefined) return;
    const annotations = { touched: String(this.world.time.elapsedMs) };
    etcd.put(key, { ...found.value, metadata: { ...metadataOf(found.value), annotations } }, found.revision);
  }

  deletePod(key: string, cell = this.cell): void {
    this.#call(cell, "DELETE", `${PODS}/${nameOf(key)}`, {});
  }

  evict(key: string): void {
    const metadata = { name: nameOf(key), namespace: NAMESPACE };
    const body = { apiVersion: "policy/v1", kind: "Eviction", metadata };
    this.#call(this.cell, "POST", `${PODS}/${nameOf(key)}/eviction`, body);
  }

  deleteOrEvict(key: string): void {
    if (this.chance.chance(0.5)) this.deletePod(key);
    else this.evict(key);
  }

  /** Deletes more pods than can be spared, in all cells. */
  drain(except: readonly string[] = []): void {
    const all = [...this.world.cells.values()].flatMap((cell) => this.pods(cell).map((key) => ({ cell, key })));
    const others = all.filter(({ cell, key }) => cell !== this.cell || !except.includes(key));
    for (let left = this.spare() + TOO_MANY; left > 0 && others.length > 0; left -= 1) {
      const index = this.chance.between(0, others.length - 1);
      for (const { cell, key } of others.splice(index, 1)) this.deletePod(key, cell);
    }
  }

  /** How many pods the tightest protector can spare now. */
  spare(): number {
    const protectors = [...this.world.cores.values()].flatMap(({ etcd }) => etcd.range("podprotectors/"));
    const spares = protectors.map((stored) => {
      const protector = parseStored(stored);
      let available = 0;
      for (const { pods } of this.world.cells.values()) available += pods.countNow(wantedOf(protector));
      return available - protector.spec.minAvailable;
    });
    return Math.max(0, Math.min(...spares));
  }

  #areCounted(): boolean {
    const protectors = [...this.world.cores.values()].flatMap(({ etcd }) => etcd.range("podprotectors/"));
    return protectors.every((stored) => {
      const counted = parseStored(stored).status?.cells.filter(
        ({ aggregation }) => aggregation?.resourceVersion !== undefined && aggregation.hold === undefined,
      );
      return counted?.length === this.world.cells.size;
    });
  }

  #call(cell: SimulatedCell, method: string, path: string, body: Json): void {
    void cell.server.handle({ method, path, body, contentType: "application/json", user: "client" });
  }
}

function nameOf(key: string): string {
  return key.split("/")[2] ?? "";
}

function createdOf(pod: Json): number {
  return Date.parse(text(metadataOf(pod).creationTimestamp) ?? "");
}
