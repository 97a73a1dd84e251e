/** A workload controller of one cell: keeps a number of pods, under fixed names (as a StatefulSet) or new ones. */
import type { VirtualTime } from "../../support/runtime/virtual-ports.ts";
import type { Json } from "../apiserver/etcd.ts";
import { isMirror, metadataOf, record } from "../apiserver/objects.ts";
import type { ApiServer } from "../apiserver/server.ts";
import type { Chance } from "../scenario/random.ts";
import { NAMESPACE } from "../scenario/scenario.ts";

const RECONCILE_MS = 1_000;
const OWNER = { apiVersion: "apps/v1", kind: "ReplicaSet", name: "web", uid: "web-uid", controller: true };

export class WorkloadController {
  readonly #server: ApiServer;
  readonly #chance: Chance;
  readonly #replicas: number;
  readonly #labels: Readonly<Record<string, string>>;
  readonly #container: Json;
  readonly #spec: Json;
  /** 0: all pods are on one node. */
  readonly #podsOfNode: number;
  #created = 0;
  #serial = 0;
  #settled: readonly unknown[] | undefined;

  constructor(
    server: ApiServer,
    time: VirtualTime,
    chance: Chance,
    replicas: number,
    labels: Readonly<Record<string, string>>,
    container: Json = {},
    podsOfNode = 0,
    spec: Json = {},
  ) {
    this.#server = server;
    this.#chance = chance;
    this.#replicas = replicas;
    this.#labels = labels;
    this.#container = container;
    this.#podsOfNode = podsOfNode;
    this.#spec = spec;
    const tick = (): void => {
      void this.reconcile();
      time.timers.after(RECONCILE_MS * (0.5 + chance.fraction()), tick);
    };
    tick();
  }

  /** Deletes failed pods and creates missing ones. */
  async reconcile(): Promise<void> {
    const pods = this.#server.etcd.range(`pods/${NAMESPACE}/`);
    // The same list as in the last reconcile, which had nothing to do: no pod has changed.
    if (pods === this.#settled) return;
    let alive = 0;
    let finished = 0;
    for (const { key, value } of pods) {
      if (metadataOf(value).deletionTimestamp !== undefined || isMirror(value)) continue;
      if (record(value.status).phase === "Failed") {
        finished += 1;
        void this.#delete(key.split("/")[2] ?? "");
      } else alive += 1;
    }
    this.#settled = finished === 0 && alive >= this.#replicas ? pods : undefined;
    for (let missing = this.#replicas - alive; missing > 0; missing -= 1) await this.#create();
  }

  async #create(): Promise<void> {
    const stable = this.#chance.chance(0.5);
    const name = stable ? this.#freeName() : `web-${++this.#serial}`;
    const body = {
      metadata: { name, ownerReferences: [OWNER], labels: { ...this.#labels, tier: this.#chance.pick(["a", "b"]) } },
      spec: {
        nodeName: this.#node(),
        containers: [{ name: "app", image: "app:1", ...this.#container }],
        ...this.#spec,
      },
      status: { phase: "Pending" },
    };
    await this.#call("POST", `/api/v1/namespaces/${NAMESPACE}/pods`, body);
  }

  /** Pods of one node are created one after the other. */
  #node(): string {
    this.#created += 1;
    return this.#podsOfNode === 0 ? "node" : `node-${Math.floor(this.#created / this.#podsOfNode)}`;
  }

  #freeName(): string {
    for (let index = 0; ; index += 1) {
      const name = `web-s${index}`;
      if (this.#server.etcd.get(`pods/${NAMESPACE}/${name}`) === undefined) return name;
    }
  }

  async #delete(name: string): Promise<void> {
    await this.#call("DELETE", `/api/v1/namespaces/${NAMESPACE}/pods/${name}`, {});
  }

  async #call(method: string, path: string, body: Readonly<Record<string, unknown>>): Promise<void> {
    await this.#server.handle({ method, path, body, contentType: "application/json", user: "workload" });
  }
}
