/** The kubelets of one cell: pods start, become ready, flap, fail, and end some time after their deletion. */
import type { VirtualTime } from "../../support/runtime/virtual-ports.ts";
import type { EtcdChange, EtcdObject, Json } from "../apiserver/etcd.ts";
import { metadataOf, record, text } from "../apiserver/objects.ts";
import { areGatesOpen, conditionOf, isTrue } from "../apiserver/pod-conditions.ts";
import type { ApiServer } from "../apiserver/server.ts";
import type { Chance } from "../scenario/random.ts";

const START_MEAN_MS = 2_000;
const TERMINATION_MEAN_MS = 5_000;
const GATE_MEAN_MS = 100;

/** What a kubelet writes into a pod's status. */
interface StatusChange {
  readonly ready?: boolean;
  readonly fields: Json;
  /** Types of the conditions to remove. */
  readonly without: readonly string[];
  readonly conditions: readonly Json[];
}

export class Kubelet {
  /** Whether the pod's container is stopped, so that the pod can't be ready. */
  isStopped: ((uid: string) => boolean) | undefined;
  /** How long it takes to set Ready once the gates are open; undefined: as usual, some 100 ms. */
  gateDelayMs: number | undefined;
  /** How far the clocks of the nodes are ahead. */
  skewMs = 0;
  readonly #server: ApiServer;
  readonly #time: VirtualTime;
  readonly #chance: Chance;
  readonly #known = new Set<string>();
  readonly #ending = new Set<string>();
  /** UIDs of pods on dead nodes. */
  readonly #silent = new Set<string>();

  constructor(server: ApiServer, time: VirtualTime, chance: Chance) {
    this.#server = server;
    this.#time = time;
    this.#chance = chance;
    server.etcd.observe((change) => this.#changed(change));
  }

  /** Changes a pod's readiness; returns false when the pod can't have it. */
  setReady(key: string, ready: boolean): boolean {
    const stored = this.#server.etcd.get(key);
    if (stored === undefined || metadataOf(stored.value).deletionTimestamp !== undefined) return false;
    if (record(stored.value.status).phase !== "Running") return false;
    if (this.isStopped?.(text(metadataOf(stored.value).uid) ?? "") === true) return false;
    this.#server.etcd.put(key, { ...stored.value, status: this.#status(stored.value, ready) }, stored.revision);
    return true;
  }

  /** Writes other fields of a pod's status. Readiness stays as it is unless `ready` is given. */
  write(stored: EtcdObject, { ready, fields, conditions, without }: StatusChange): void {
    const status = record(stored.value.status);
    const kept = conditionsOf(stored.value).filter(({ type }) => !without.includes(String(type)));
    const value = { ...stored.value, status: { ...status, conditions: [...kept, ...conditions], ...fields } };
    const next = ready === undefined ? value : { ...value, status: this.#status(value, ready) };
    this.#server.etcd.put(stored.key, next, stored.revision);
  }

  /** A pod that is pending starts at once. */
  start(key: string): void {
    this.#start(key, text(metadataOf(this.#server.etcd.get(key)?.value ?? {}).uid) ?? "");
  }

  /** The pod's kubelet is silent from now on. Returns true when node-lifecycle has set Ready to False. */
  nodeDied(key: string): boolean {
    const stored = this.#server.etcd.get(key);
    if (stored === undefined) return false;
    this.#silent.add(text(metadataOf(stored.value).uid) ?? "");
    if (!isTrue(stored.value, "Ready")) return false;
    const lastTransitionTime = secondOf(this.#time.clock.nowMs());
    const conditions = conditionsOf(stored.value).map((one) =>
      one.type === "Ready" ? { ...one, status: "False", lastTransitionTime } : one,
    );
    this.#server.etcd.put(
      key,
      { ...stored.value, status: { ...record(stored.value.status), conditions } },
      stored.revision,
    );
    return true;
  }

  nodeIsBack(key: string, uid: string): void {
    this.#silent.delete(uid);
    const stored = this.#server.etcd.get(key);
    if (stored !== undefined && metadataOf(stored.value).uid === uid) this.#regard(key, stored.value);
  }

  /** The pod fails for good, and its containers end. */
  fail(key: string, reason?: string): void {
    const stored = this.#server.etcd.get(key);
    if (stored === undefined || metadataOf(stored.value).deletionTimestamp !== undefined) return;
    const status = { phase: "Failed", conditions: [], ...(reason === undefined ? {} : { reason }) };
    this.#server.etcd.put(key, { ...stored.value, status }, stored.revision);
  }

  /** After a restore of etcd, pods continue from their stored state. */
  restarted(): void {
    this.#known.clear();
    this.#ending.clear();
    this.#silent.clear();
    for (const after of this.#server.etcd.range("pods/"))
      this.#changed({ key: after.key, revision: after.revision, before: undefined, after });
  }

  #changed({ key, after }: EtcdChange): void {
    if (!key.startsWith("pods/") || after === undefined) return;
    this.#regard(key, after.value);
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
    this.#server.etcd.put(key, { ...stored.value, status: this.#status(stored.value, true) }, stored.revision);
  }

  /** After a condition of a readiness gate or somebody else's write has changed, Ready follows some time later. */
  #regard(key: string, value: Json): void {
    if (isReported(value) || this.#silent.has(text(metadataOf(value).uid) ?? "")) return;
    this.#time.timers.after(this.gateDelayMs ?? this.#chance.exponential(GATE_MEAN_MS), () => {
      const stored = this.#server.etcd.get(key);
      if (stored === undefined || metadataOf(stored.value).uid !== metadataOf(value).uid) return;
      if (isReported(stored.value) || this.#silent.has(text(metadataOf(value).uid) ?? "")) return;
      const ready = { ...readyOf(true, areGatesOpen(stored.value)), lastTransitionTime: this.#now() };
      this.write(stored, { fields: {}, without: ["Ready"], conditions: [ready] });
    });
  }

  async #end(key: string, uid: string): Promise<void> {
    const [, namespace = "", name = ""] = key.split("/");
    const body = { gracePeriodSeconds: 0, preconditions: { uid } };
    const path = `/api/v1/namespaces/${namespace}/pods/${name}`;
    const response = await this.#server.handle({
      method: "DELETE",
      path,
      body,
      contentType: "application/json",
      user: "kubelet",
    });
    if (response.status < 300 || response.status === 404 || response.status === 409) return;
    this.#time.timers.after(5_000, () => void this.#end(key, uid));
  }

  /** By the clock of the node. */
  #now(): string {
    return secondOf(this.#time.clock.nowMs() + this.skewMs);
  }

  #status({ spec, status }: Json, ready: boolean): Json {
    const lastTransitionTime = this.#now();
    const others = conditionsOf({ status }).filter(({ type }) => type !== "ContainersReady" && type !== "Ready");
    const containers: Json = ready
      ? { type: "ContainersReady", status: "True" }
      : { type: "ContainersReady", status: "False", reason: "ContainersNotReady" };
    const both = [containers, readyOf(ready, areGatesOpen({ spec, status }))];
    const conditions = [...others, ...both.map((condition) => ({ ...condition, lastTransitionTime }))];
    return { ...record(status), phase: "Running", conditions };
  }
}

function secondOf(ms: number): string {
  return new Date(Math.floor(ms / 1000) * 1000).toISOString();
}

/** True when Ready is what the containers and the gates make it. */
function isReported(pod: Json): boolean {
  if (!isTrue(pod, "ContainersReady")) return true;
  const found = conditionOf(pod, "Ready");
  const wanted = readyOf(true, areGatesOpen(pod));
  return found?.status === wanted.status && found?.reason === wanted.reason;
}

/** With the reasons of pkg/kubelet/status/generate.go. */
function readyOf(areContainersReady: boolean, areGatesTrue: boolean): Json {
  if (!areContainersReady) return { type: "Ready", status: "False", reason: "ContainersNotReady" };
  if (!areGatesTrue) return { type: "Ready", status: "False", reason: "ReadinessGatesNotReady" };
  return { type: "Ready", status: "True" };
}

function conditionsOf({ status }: Json): Json[] {
  const { conditions } = record(status);
  return Array.isArray(conditions) ? conditions.map(record) : [];
}
