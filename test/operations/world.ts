/** One namespace with the objects of all tracks, and the components that see this namespace alone. */
import { setTimeout as delay } from "node:timers/promises";
import { ApiError, field, items } from "../../scripts/control-plane/api-client.ts";
import type { Cluster } from "../../scripts/control-plane/cluster.ts";
import type { Transport } from "../../shared/kube/client/transport.ts";
import { eachAtMost } from "../../shared/runtime/each-at-most.ts";
import { PROTECT_LABEL } from "../../shared/schema/annotations.ts";
import { createReadyPods } from "../support/cluster/pods.ts";
import { type ObservedComponent, startAggregator, startGenerator } from "./components.ts";
import { DisturbedTransport } from "./disturbed-transport.ts";
import { lasting, POKED } from "./end-state.ts";
import { KINDS, template } from "./kinds.ts";
import { changed, nameOf, objectOf, pathOf, type Track } from "./tracks.ts";

const CALLS_AT_ONCE = 12;
const POLL_MS = 20;
const SETTLED_WITHIN_MS = 300_000;
/** How long something is held back from components that wait for it. */
const HELD_MS = 3_000;
const COLLECTIONS = [
  "/apis/apps/v1/namespaces/WORLD/deployments",
  "/apis/policy/v1/namespaces/WORLD/poddisruptionbudgets",
  "/apis/policy.kruise.io/v1beta1/namespaces/WORLD/podunavailablebudgets",
  "/apis/x-pdb.form3.tech/v1alpha1/namespaces/WORLD/xpoddisruptionbudgets",
  "/apis/podseidon.kubewharf.io/v1alpha1/namespaces/WORLD/podprotectors",
];
const PODS = "/api/v1/namespaces/WORLD/pods";
const MARKER = "marker";
const PODS_OF_TRACK = 2;

interface Running {
  readonly transport: DisturbedTransport;
  readonly component: ObservedComponent;
}

class NotSettled extends Error {}

export class ObjectWorld {
  readonly name: string;
  readonly #cluster: Cluster;
  readonly #transport: Transport;
  #running: readonly Running[] = [];
  #ticks = 0;
  readonly problems: string[] = [];

  constructor(cluster: Cluster, transport: Transport, name: string) {
    this.#cluster = cluster;
    this.#transport = transport;
    this.name = name;
  }

  get transports(): readonly DisturbedTransport[] {
    return this.#running.map(({ transport }) => transport);
  }

  /** Creates the namespace, the objects of `tracks`, and an object of each kind that marks the progress of watches. */
  async create(tracks: readonly Track[]): Promise<void> {
    const { admin } = this.#cluster;
    await admin.call("POST", "/api/v1/namespaces", { metadata: { name: this.name } });
    const kinds = [...new Map(KINDS.map((kind) => [kind.resource, kind])).values()];
    await Promise.all(
      kinds.map((kind) => admin.call("POST", pathOf(kind, this.name), objectOf(kind, MARKER, MARKER, {}))),
    );
    await createReadyPods(this.#cluster, { ...this.#pods(MARKER), prefix: MARKER, count: 1 });
    await eachAtMost(CALLS_AT_ONCE, tracks, (track) => this.#createTrack(track));
  }

  async #createTrack({ app, kind }: Track): Promise<void> {
    const { admin } = this.#cluster;
    const made = kind.madeFrom ?? kind;
    const labels = made.isSource ? { [PROTECT_LABEL]: "true" } : {};
    if (kind.neighbours === "workload") {
      const spec = { replicas: 4, selector: { matchLabels: { app } }, template: template(app) };
      await admin.call("POST", `/apis/apps/v1/namespaces/${this.name}/deployments`, { metadata: { name: app }, spec });
    }
    if (kind.neighbours === "pods") {
      await createReadyPods(this.#cluster, { ...this.#pods(app), prefix: app, count: PODS_OF_TRACK });
    }
    await admin.call("POST", pathOf(made, this.name), objectOf(made, app, app, labels));
  }

  #pods(app: string) {
    return { namespace: this.name, labels: { app } };
  }

  start(replayed?: readonly ReadonlyMap<string, string>[]): void {
    const starts = [(one: Transport) => startGenerator(one, this.name), startAggregator];
    this.#running = starts.map((start, index) => {
      const transport = new DisturbedTransport(this.#transport, this.name);
      const lists = replayed?.[index];
      if (lists !== undefined) transport.replay(lists);
      return { transport, component: start(transport) };
    });
  }

  /** The components end as a process that is killed does: what they have under way gets no answer. */
  async kill(): Promise<void> {
    const running = this.#running;
    this.#running = [];
    for (const { transport } of running) transport.close();
    for (const { component, transport } of running) {
      await component.stop();
      this.problems.push(...component.problems(), ...transport.unsafeLists);
    }
  }

  /** The writes of the generator since it was started. */
  get writes(): readonly string[] {
    return this.#running[0]?.transport.writes ?? [];
  }

  /** Sets the field of the track's object, whatever else has changed it meanwhile. */
  async change({ app, kind, path }: Track, value: unknown): Promise<void> {
    const at = pathOf(
      kind,
      this.name,
      kind.madeFrom === undefined ? app : `${kind.madeFrom.resource.slice(0, -1)}-${app}`,
    );
    for (;;) {
      const object = await this.#cluster.admin.get(at);
      const answer = await this.#cluster.admin.request("PUT", at, changed(kind, object, path, value));
      if (answer.status === 409) continue;
      if (answer.status >= 400) throw new ApiError("PUT", at, answer);
      return;
    }
  }

  /** Changes each protector of `tracks` without a meaning, so that the components look at it. */
  async poke(tracks: readonly Track[]): Promise<void> {
    const apps = new Set(tracks.map(({ app }) => app));
    const body = { metadata: { annotations: { [POKED]: String(++this.#ticks) } } };
    const protectors = items(await this.#cluster.admin.get(this.#path(COLLECTIONS.at(-1) ?? "")));
    const named = protectors.map(nameOf).filter((name) => apps.has(appOf(name)));
    await eachAtMost(CALLS_AT_ONCE, named, async (name) => {
      await this.#cluster.admin.call("PATCH", `${this.#path(COLLECTIONS.at(-1) ?? "")}/${name}`, body);
    });
  }

  /** The components have read all that is stored of the resources that `which` accepts, and have done their work. */
  async settled(which: (resource: string) => boolean = () => true, withinMs = SETTLED_WITHIN_MS): Promise<void> {
    // What they write in the first round they read in the second.
    for (let round = 0; round < 2; round++) {
      const marks = await this.#mark(which);
      const isSettled = (): boolean =>
        this.#running.every(
          ({ transport, component }) =>
            marks.every(([resource, version]) => transport.hasReached(resource, version)) && component.isIdle(),
        );
      await this.#until(`${this.name} to settle`, isSettled, withinMs);
    }
  }

  /**
   * As {@link settled}, for {@link HELD_MS} at most: who writes to an object that has changed, and may not read that,
   * tries again and again.
   */
  async settledWhileHeld(which: (resource: string) => boolean): Promise<void> {
    await this.settled(which, HELD_MS).catch(unlessNotSettled);
  }

  /** The components are idle, whatever is held back, or have tried for as long as {@link settledWhileHeld}. */
  async idleWhileHeld(): Promise<void> {
    const isIdle = (): boolean => this.#running.every(({ component }) => component.isIdle());
    await this.#until(`${this.name} to be idle`, isIdle, HELD_MS).catch(unlessNotSettled);
  }

  async #mark(which: (resource: string) => boolean): Promise<[string, number][]> {
    const body = { metadata: { annotations: { [POKED]: String(++this.#ticks) } } };
    const paths = [...COLLECTIONS.map((path) => `${path}/${MARKER}`), `${PODS}/${MARKER}-0`].map((path) =>
      this.#path(path),
    );
    const wanted = paths
      .map((path): [string, string] => [path.split("/").at(-2) ?? "", path])
      .filter(([resource]) => which(resource));
    return await Promise.all(
      wanted.map(async ([resource, path]): Promise<[string, number]> => {
        const marked = await this.#cluster.admin.call("PATCH", path, body);
        return [resource, Number(field(marked, "metadata", "resourceVersion"))];
      }),
    );
  }

  /** The state of all objects by the name of the track. */
  async state(): Promise<Map<string, unknown>> {
    const lists = await Promise.all(COLLECTIONS.map((path) => this.#cluster.admin.get(this.#path(path))));
    const states = new Map<string, Record<string, unknown>>();
    for (const object of lists.flatMap((list) => items(list).map((item) => ({ list, item })))) {
      const app = appOf(nameOf(object.item));
      const state = states.get(app) ?? {};
      states.set(app, state);
      state[`${String(field(object.list, "kind")).replace(/List$/, "")} ${nameOf(object.item)}`] = lasting(
        object.item,
        this.name,
      );
    }
    return states;
  }

  #path(path: string): string {
    return path.replace("WORLD", this.name);
  }

  async #until(what: string, isTrue: () => boolean, withinMs = SETTLED_WITHIN_MS): Promise<void> {
    const startedMs = performance.now();
    while (!isTrue()) {
      if (performance.now() - startedMs > withinMs)
        throw new NotSettled([`timed out waiting for ${what}`, ...this.#running.map(describe)].join("\n"));
      await delay(POLL_MS);
    }
  }
}

function unlessNotSettled(error: unknown): void {
  if (!(error instanceof NotSettled)) throw error;
}

function describe({ transport, component }: Running): string {
  const state = component.isIdle() ? "idle" : "busy";
  return `${component.name} is ${state}: ${[...component.problems(), ...transport.writes.slice(-5)].join("; ")}`;
}

/** The track of an object: a protector is called after the kind of its source. */
function appOf(name: string): string {
  return name.replace(/^.*-/, "").replace(/\.running$/, "");
}
