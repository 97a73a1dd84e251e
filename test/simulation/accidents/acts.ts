/** What one accident does to its world, piece by piece, and takes back when it is over: the verbs of a scene, in a world full of others. */
import { sleep } from "../../../shared/runtime/clock.ts";
import type { Json } from "../apiserver/etcd.ts";
import { metadataOf, text } from "../apiserver/objects.ts";
import { isTrulyAvailable } from "../truth/pod-truth.ts";
import { parse, wantedOf } from "../truth/stored-protectors.ts";
import type { Chance } from "../world/random.ts";
import { NAMESPACE, type SimulatedCell, type World } from "../world/world.ts";

const PODS = `/api/v1/namespaces/${NAMESPACE}/pods`;
/** Beyond what can be spared, so that one that is let go wrongly is seen. */
const TOO_MANY = 3;
/** A hold lasts for a settle period and what is under way. */
const POLL_MS = 1_000;
const MOST_POLLS = 100;

/** Faults have stopped in the middle of it: what was still to come does not happen. */
export class Over extends Error {}

export class Acts {
  readonly world: World;
  readonly chance: Chance;
  /** Where it happens. */
  readonly cell: SimulatedCell;
  readonly #undone: (() => void)[] = [];

  constructor(world: World, chance: Chance) {
    this.world = world;
    this.chance = chance;
    this.cell = chance.pick([...world.cells.values()]);
  }

  /** Rejects with {@link Over} where faults have stopped meanwhile. */
  async pass(ms: number): Promise<void> {
    await sleep(this.world.time, ms);
    if (!this.world.faultsActive) throw new Over();
  }

  /** Until every protector counts every cell, none of them on hold, or for long enough. */
  async untilCounted(): Promise<void> {
    for (let left = MOST_POLLS; left > 0 && !this.#areCounted(); left -= 1) await this.pass(POLL_MS);
  }

  /** `act` is called when the accident is over, however it ends. */
  later(act: () => void): void {
    this.#undone.push(act);
  }

  /** Takes back what lasts. */
  end(): void {
    for (const act of this.#undone.splice(0).reverse()) act();
  }

  watchLag(server: string, ms: number): void {
    const { watchLagMs } = this.world.knobs;
    watchLagMs.set(server, ms);
    this.later(() => watchLagMs.delete(server));
  }

  /** How long allowed deletions of the cell take from here on. */
  commits(ms: number): void {
    const { commitDelayMs } = this.world.knobs;
    commitDelayMs.set(this.cell.name, ms);
    this.later(() => commitDelayMs.delete(this.cell.name));
  }

  /** Deletions are carried out as ever again. */
  commitsAsEver(): void {
    this.world.knobs.commitDelayMs.delete(this.cell.name);
  }

  /** All calls and streams of `user` at `server` take so long. */
  slow(user: "webhook" | "aggregator", server: string, fixedDelayMs: number): void {
    this.world.network.set(user, server, { fixedDelayMs });
    this.later(() => this.world.network.heal());
  }

  /** What `user` sends to `server` never arrives. */
  silence(user: "webhook" | "aggregator", server: string): void {
    this.world.network.set(user, server, { requestsLost: true });
    this.later(() => this.world.network.heal());
  }

  /** They do nothing until the accident is over, and hold what they know. */
  pauseAggregators(cells: Iterable<SimulatedCell> = [this.cell]): void {
    for (const node of [...cells].flatMap(({ aggregators }) => aggregators)) {
      node.pause();
      this.later(() => node.resume());
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

  /** One that is available; throws {@link Over} where there is none. */
  somePod(): string {
    const pods = this.pods();
    if (pods.length === 0) throw new Over();
    return this.chance.pick(pods);
  }

  uid(key: string): string | undefined {
    return text(metadataOf(this.cell.server.etcd.get(key)?.value ?? {}).uid);
  }

  ready(key: string, isReady: boolean): void {
    this.cell.kubelet.setReady(key, isReady);
  }

  /** Something that has no say in availability. */
  touch(key: string): void {
    const { etcd } = this.cell.server;
    const found = etcd.get(key);
    if (found === undefined) return;
    const annotations = { touched: String(this.world.time.elapsedMs) };
    etcd.put(key, { ...found.value, metadata: { ...metadataOf(found.value), annotations } }, found.revision);
  }

  remove(key: string, cell = this.cell): void {
    this.#call(cell, "DELETE", `${PODS}/${nameOf(key)}`, {});
  }

  evict(key: string): void {
    const metadata = { name: nameOf(key), namespace: NAMESPACE };
    const body = { apiVersion: "policy/v1", kind: "Eviction", metadata };
    this.#call(this.cell, "POST", `${PODS}/${nameOf(key)}/eviction`, body);
  }

  removeOrEvict(key: string): void {
    if (this.chance.chance(0.5)) this.remove(key);
    else this.evict(key);
  }

  /** Somebody deletes more pods than can be spared, wherever they are. */
  drain(except: readonly string[] = []): void {
    const all = [...this.world.cells.values()].flatMap((cell) => this.pods(cell).map((key) => ({ cell, key })));
    const others = all.filter(({ cell, key }) => cell !== this.cell || !except.includes(key));
    for (let left = this.#spare() + TOO_MANY; left > 0 && others.length > 0; left -= 1) {
      const index = this.chance.between(0, others.length - 1);
      for (const { cell, key } of others.splice(index, 1)) this.remove(key, cell);
    }
  }

  #areCounted(): boolean {
    const protectors = [...this.world.cores.values()].flatMap(({ etcd }) => etcd.range("podprotectors/"));
    return protectors.every((stored) => {
      const counted = parse(stored).status?.cells.filter(
        ({ aggregation }) => aggregation?.resourceVersion !== undefined && aggregation.hold === undefined,
      );
      return counted?.length === this.world.cells.size;
    });
  }

  /** By the tightest protector, as things are. */
  #spare(): number {
    const protectors = [...this.world.cores.values()].flatMap(({ etcd }) => etcd.range("podprotectors/"));
    const spares = protectors.map((stored) => {
      const protector = parse(stored);
      let available = 0;
      for (const { pods } of this.world.cells.values()) available += pods.countNow(wantedOf(protector));
      return available - protector.spec.minAvailable;
    });
    return Math.max(0, Math.min(...spares));
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
