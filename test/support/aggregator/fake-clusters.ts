/**
 * A fake core and a fake cell for unit tests of the aggregator. The test changes objects, decides when events,
 * responses and evidence arrive, and sees every write. Of an apiserver they have only the compare-and-swap on one
 * object.
 */

import type { AggregatorOptions } from "../../../controllers/aggregator/aggregator.ts";
import type { CoreAccess } from "../../../controllers/aggregator/settling/status-writer.ts";
import type { ApiResult } from "../../../shared/kube/client/api-result.ts";
import type { InformerHandler, LearningInformer } from "../../../shared/kube/informer/informer.ts";
import { ObjectStore } from "../../../shared/kube/informer/object-store.ts";
import type { Pod } from "../../../shared/schema/pod.ts";
import type {
  Bucket,
  CellStatus,
  PodProtector,
  PodProtectorSpec,
  PodProtectorStatus,
} from "../../../shared/schema/podprotector.ts";
import { makePod } from "../decide/fixtures.ts";
import type { VirtualTime } from "../runtime/virtual-ports.ts";

/** An informer whose stream the test writes. */
class FakeInformer<T> implements LearningInformer<T> {
  readonly store: ObjectStore<T>;
  confirmedSentMs: number | undefined;
  lastContactMs: number | undefined;
  serverVersion: string | undefined;
  quorumSentMs: number | undefined;
  /** How often a quorum LIST was requested. */
  asked = 0;
  readonly #synced = Promise.withResolvers<void>();

  constructor(uidOf: (object: T) => string, versionOf: (object: T) => string) {
    this.store = new ObjectStore<T>({
      uidOf,
      versionOf,
      onHandlerError: (error) => {
        throw error;
      },
    });
  }

  get(key: string): T | undefined {
    return this.store.get(key);
  }
  values(): Iterable<T> {
    return this.store.values();
  }
  get size(): number {
    return this.store.size;
  }
  get position(): string | undefined {
    return this.store.position;
  }
  get synced(): boolean {
    return this.store.position !== undefined;
  }
  subscribe(handler: InformerHandler<T>): () => void {
    return this.store.subscribe(handler);
  }
  /** Keys and versions that responses have shown. */
  readonly known: string[] = [];
  learned(key: string, version: string): void {
    this.known.push(`${key} ${version}`);
  }

  requestEvidence(): void {
    this.asked++;
  }

  async whenSynced(signal: AbortSignal): Promise<void> {
    const aborted = new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
    await Promise.race([this.#synced.promise, aborted]);
  }

  distrusted = 0;
  historyInDoubt = false;
  distrustHistory(): void {
    this.distrusted++;
    this.historyInDoubt = true;
  }

  list(objects: Map<string, T>, version: string): void {
    this.historyInDoubt = false;
    this.store.swap(objects, version, false);
    this.#synced.resolve();
  }

  /** The stream has reached a quorum LIST that was sent at `sentMs`. */
  confirm(sentMs: number): void {
    this.confirmedSentMs = sentMs;
    this.store.tellConfirmed(sentMs);
  }
}

/** How long a `late` write takes, unless the core says otherwise. */
export const LATE_MS = 1_000;

/** `hang`: not made, no response before the timeout. `lost`: made, and the response is lost. */
export type FakeResponse = "ok" | "late" | "conflict" | "unavailable" | "hang" | "lost";

/** A core cluster: protectors with versions, and a script of responses to writes. */
export class FakeCore {
  readonly name: string;
  readonly protectors = new FakeInformer<PodProtector>(
    ({ metadata }) => metadata.uid,
    ({ metadata }) => metadata.resourceVersion,
  );
  readonly objects = new Map<string, PodProtector>();
  /** Every status that was written, oldest first. */
  readonly writes: { readonly name: string; readonly status: PodProtectorStatus; readonly atMs: number }[] = [];
  reads = 0;
  attempts = 0;
  /** Responses to the next writes. */
  readonly script: FakeResponse[] = [];
  /** The response to every write after the script. */
  answer: FakeResponse = "ok";
  lateMs = LATE_MS;
  /** False: the watch delivers nothing. */
  streams = true;
  /** Fields that the CRD drops. */
  dropped: readonly string[] = [];
  readonly #time: VirtualTime;
  #version = 1000;

  constructor(name: string, time: VirtualTime) {
    this.name = name;
    this.#time = time;
  }

  get access(): CoreAccess {
    return {
      name: this.name,
      protectors: this.protectors,
      api: {
        getPodProtector: async (_namespace, name) => this.#read(name),
        putPodProtectorStatus: async (identity, status, options) => {
          this.attempts++;
          const answer = this.script.shift() ?? this.answer;
          if (answer === "late")
            await new Promise<void>((resolve) => void this.#time.timers.after(this.lateMs, resolve));
          if (answer === "hang") {
            await new Promise<void>((resolve) => {
              this.#time.timers.after(options.timeoutMs, resolve);
              options.signal?.addEventListener("abort", () => resolve(), { once: true });
            });
          }
          if (answer === "unavailable" || answer === "hang")
            return { kind: "unavailable", error: new Error(`core ${answer}`), sent: false };
          const result = this.#write(answer === "conflict" ? { ...identity, resourceVersion: "0" } : identity, status);
          return answer === "lost" ? { kind: "unavailable", error: new Error("lost"), sent: true } : result;
        },
      },
    };
  }

  put(name: string, spec: Partial<PodProtectorSpec> = {}, change: Partial<PodProtector> = {}): PodProtector {
    const before = this.objects.get(name);
    const version = this.next();
    const full: PodProtectorSpec = {
      minAvailable: 1,
      minReadySeconds: 0,
      selector: { matchLabels: { app: name } },
      ...spec,
    };
    const object: PodProtector = {
      metadata: before?.metadata ?? {
        namespace: "ns",
        name,
        uid: `${name}-${version}`,
        resourceVersion: version,
        generation: 1,
      },
      ...(before?.status === undefined ? {} : { status: before.status }),
      spec: full,
      ...change,
    };
    return this.store(name, object, version);
  }

  /** Changes one protector as another writer would. */
  edit(name: string, change: (object: PodProtector) => PodProtector): PodProtector {
    return this.store(name, change(structuredClone(this.get(name))), this.next());
  }

  /** Adds buckets to a cell's history as a webhook would. */
  admit(name: string, cellID: string, ...added: Bucket[]): void {
    this.edit(name, (object) => {
      const cells = (object.status?.cells ?? []).map((cell) =>
        cell.cellID === cellID
          ? { ...cell, admissionHistory: { buckets: [...(cell.admissionHistory?.buckets ?? []), ...added] } }
          : cell,
      );
      return { ...object, status: { ...statusOf(object), cells } };
    });
  }

  remove(name: string): void {
    const object = this.get(name);
    this.objects.delete(name);
    if (this.streams) this.protectors.store.remove(`ns/${name}`, object.metadata.uid, this.next());
  }

  get(name: string): PodProtector {
    const object = this.objects.get(name);
    if (object === undefined) throw new Error(`there is no protector ${name}`);
    return object;
  }

  entry(name: string, cellID = "cell"): CellStatus | undefined {
    return this.get(name).status?.cells.find((cell) => cell.cellID === cellID);
  }

  /** Delivers a complete list: the first, or a relist. */
  sync(): void {
    const objects = [...this.objects.values()].map((object) => [`ns/${object.metadata.name}`, object] as const);
    this.protectors.list(new Map(objects), this.next());
  }

  next(): string {
    return String(++this.#version);
  }

  /** Restores the etcd to these objects and to an older version. */
  restore(objects: ReadonlyMap<string, PodProtector>, version: number): void {
    this.#version = version;
    this.objects.clear();
    for (const [name, object] of objects) this.objects.set(name, object);
  }

  private store(name: string, object: PodProtector, version: string): PodProtector {
    const stored = { ...object, metadata: { ...object.metadata, resourceVersion: version } };
    this.objects.set(name, stored);
    if (this.streams && this.protectors.synced) this.protectors.store.upsert(`ns/${name}`, stored, version);
    return stored;
  }

  #read(name: string): ApiResult<PodProtector> {
    this.reads++;
    const object = this.objects.get(name);
    return object === undefined ? { kind: "gone" } : { kind: "ok", object };
  }

  #write(
    identity: { name: string; uid: string; resourceVersion: string },
    status: PodProtectorStatus,
  ): ApiResult<PodProtector> {
    const object = this.objects.get(identity.name);
    if (object === undefined) return { kind: "gone" };
    const { uid, resourceVersion } = object.metadata;
    if (uid !== identity.uid || resourceVersion !== identity.resourceVersion)
      return { kind: "conflict", message: "conflict" };
    const kept = JSON.parse(JSON.stringify(status, (key, value) => (this.dropped.includes(key) ? undefined : value)));
    const stored = this.store(identity.name, { ...object, status: kept }, this.next());
    this.writes.push({ name: identity.name, status: kept, atMs: this.#time.elapsedMs });
    return { kind: "ok", object: stored };
  }
}

function statusOf(object: PodProtector): PodProtectorStatus {
  const blank = { totalReplicas: 0, aggregatedAvailableReplicas: 0, estimatedAvailableReplicas: 0 };
  return object.status ?? { cells: [], summary: blank };
}

/** A cell: its pods, with the versions of its etcd. */
export class FakeCell {
  readonly pods = new FakeInformer<Pod>(
    (pod) => pod.uid,
    (pod) => pod.resourceVersion,
  );
  /** The pods that a quorum read finds; the stream may lag. */
  readonly live = new Map<string, Pod>();
  readonly gets: string[] = [];
  readonly patches: { readonly path: string; readonly body: unknown }[] = [];
  /** Failures of the next patches. */
  readonly patchFailures: Exclude<ApiResult<never>, { kind: "ok" }>[] = [];
  version = 100;

  /** As `CellPods` finds it. */
  podByUid(uid: string): Pod | undefined {
    return [...this.pods.values()].find((pod) => pod.uid === uid);
  }

  pod(name: string, change: Partial<Pod> = {}): Pod {
    return {
      ...{ ...makePod(name), namespace: "ns", resourceVersion: String(this.version), labels: { app: "p" } },
      conditions: [{ type: "Ready", status: true, sinceMs: 1 }],
      ...change,
    };
  }

  /** Creates or changes a pod at the next version; the stream delivers it at once. */
  put(name: string, change: Partial<Pod> = {}): Pod {
    const pod = this.putUnseen(name, change);
    this.pods.store.upsert(`ns/${name}`, pod, pod.resourceVersion);
    return pod;
  }

  /** Does the same without an event in the stream. */
  putUnseen(name: string, change: Partial<Pod> = {}): Pod {
    this.version++;
    const pod = { ...(this.live.get(name) ?? this.pod(name)), ...change, resourceVersion: String(this.version) };
    this.live.set(name, pod);
    return pod;
  }

  remove(name: string): void {
    this.version++;
    const pod = this.live.get(name);
    this.live.delete(name);
    if (pod !== undefined) this.pods.store.remove(`ns/${name}`, pod.uid, String(this.version));
  }

  unready(name: string): Pod {
    return this.put(name, { conditions: [{ type: "Ready", status: false, sinceMs: 1 }] });
  }

  sync(): void {
    const pods = [...this.live.values()].map((pod) => [`ns/${pod.name}`, pod] as const);
    this.pods.list(new Map(pods), String(this.version));
  }

  /** The conditions of a strategic merge patch of the status. */
  #addConditions(name: string, body: unknown): void {
    const pod = this.live.get(name);
    if (pod === undefined) return;
    const added: { type: string; status: string }[] = Object(body).status.conditions;
    const conditions = [
      ...pod.conditions.filter(({ type }) => added.every((one) => one.type !== type)),
      ...added.map(({ type, status }) => ({ type, status: status === "True", sinceMs: 1_000 })),
    ];
    this.put(name, { conditions });
  }

  get client(): AggregatorOptions["cellClient"] {
    return {
      getPod: async <T>(_namespace: string, name: string, _parse: (raw: unknown) => T): Promise<ApiResult<T>> => {
        this.gets.push(name);
        const pod = this.live.get(name);
        // Stands for the parser's result: the fake keeps parsed pods.
        return pod === undefined ? { kind: "gone" } : { kind: "ok", object: pod as T };
      },
      patch: async (path, _type, body) => {
        this.patches.push({ path, body });
        const scripted = this.patchFailures.shift();
        if (scripted !== undefined) return scripted;
        const isStatus = path.endsWith("/status");
        const name = path.split("/").at(isStatus ? -2 : -1) ?? "";
        if (isStatus) this.#addConditions(name, body);
        return this.live.has(name) ? { kind: "ok", object: this.put(name) as never } : { kind: "gone" };
      },
    };
  }
}

/** A reservation as a webhook writes it. */
export function bucket(pod: Pod, change: Partial<Bucket> = {}): Bucket {
  return {
    startTime: "2026-01-01T00:00:00.000000Z",
    podUID: pod.uid,
    podName: pod.name,
    podResourceVersion: pod.resourceVersion,
    operation: "DELETE",
    nonce: `nonce-${pod.name}`,
    paid: true,
    ...change,
  };
}
