/** The kubelets of one cell: pods start, become ready, flap, fail, and end some time after their deletion. */
import type { VirtualTime } from "../../support/virtual-ports.ts";
import type { Change, Json } from "../apiserver/etcd.ts";
import { metadataOf, record, text } from "../apiserver/objects.ts";
import type { ApiServer } from "../apiserver/server.ts";
import type { Chance } from "../random.ts";

const START_MEAN_MS = 2_000;
const TERMINATION_MEAN_MS = 5_000;

export class Kubelet {
  readonly #server: ApiServer;
  readonly #time: VirtualTime;
  readonly #chance: Chance;
  readonly #known = new Set<string>();
  readonly #ending = new Set<string>();

  constructor(server: ApiServer, time: VirtualTime, chance: Chance) {
    this.#server = server;
    this.#time = time;
    this.#chance = chance;
    server.etcd.observe((change) => this.#changed(change));
  }

  /** A pod's Ready condition changes by itself; false when the pod can't. */
  setReady(key: string, ready: boolean): boolean {
    const stored = this.#server.etcd.get(key);
    if (stored === undefined || metadataOf(stored.value).deletionTimestamp !== undefined) return false;
    if (record(stored.value.status).phase !== "Running") return false;
    this.#server.etcd.put(key, { ...stored.value, status: this.#status(ready) }, stored.revision);
    return true;
  }

  /** The pod fails for good; its containers are gone. */
  fail(key: string): void {
    const stored = this.#server.etcd.get(key);
    if (stored === undefined || metadataOf(stored.value).deletionTimestamp !== undefined) return;
    this.#server.etcd.put(key, { ...stored.value, status: { phase: "Failed", conditions: [] } }, stored.revision);
  }

  /** etcd was restored: pods are where they were in their lives. */
  restarted(): void {
    this.#known.clear();
    this.#ending.clear();
    for (const after of this.#server.etcd.range("pods/"))
      this.#changed({ key: after.key, revision: after.revision, before: undefined, after });
  }

  #changed({ key, after }: Change): void {
    if (!key.startsWith("pods/") || after === undefined) return;
    const uid = text(metadataOf(after.value).uid) ?? "";
    if (metadataOf(after.value).deletionTimestamp !== undefined) {
      if (this.#ending.has(uid)) return;
      this.#ending.add(uid);
      this.#time.timers.after(this.#chance.exponential(TERMINATION_MEAN_MS), () => void this.#end(key, uid));
    } else if (!this.#known.has(uid)) {
      this.#known.add(uid);
      this.#time.timers.after(this.#chance.exponential(START_MEAN_MS), () => this.#start(key, uid));
    }
  }

  #start(key: string, uid: string): void {
    const stored = this.#server.etcd.get(key);
    if (
      stored === undefined ||
      record(stored.value.status).phase !== "Pending" ||
      metadataOf(stored.value).uid !== uid ||
      metadataOf(stored.value).deletionTimestamp !== undefined
    )
      return;
    this.#server.etcd.put(key, { ...stored.value, status: this.#status(true) }, stored.revision);
  }

  async #end(key: string, uid: string): Promise<void> {
    const [, namespace = "", name = ""] = key.split("/");
    const body = { gracePeriodSeconds: 0, preconditions: { uid } };
    const path = `/api/v1/namespaces/${namespace}/pods/${name}`;
    const reply = await this.#server.handle({
      method: "DELETE",
      path,
      body,
      contentType: "application/json",
      user: "kubelet",
    });
    if (reply.status < 300 || reply.status === 404 || reply.status === 409) return;
    this.#time.timers.after(5_000, () => void this.#end(key, uid));
  }

  #status(ready: boolean): Json {
    const lastTransitionTime = new Date(Math.floor(this.#time.clock.nowMs() / 1000) * 1000).toISOString();
    const condition = (type: string, value: boolean): Json => ({
      type,
      status: value ? "True" : "False",
      lastTransitionTime,
    });
    return { phase: "Running", conditions: [condition("ContainersReady", ready), condition("Ready", ready)] };
  }
}
