import { backupMaps, changesInPlace, generatorWrites } from "./component-steps.ts";
import { shardedLists } from "./shards.ts";

interface ContractResponse {
  readonly status: number;
  readonly body: unknown;
}

export interface ContractServer {
  request(method: string, path: string, body?: unknown, contentType?: string): Promise<ContractResponse>;
  /** Resolves to all lines of a watch when the server ends it. */
  watch(path: string): Promise<readonly unknown[]>;
}

export type ContractValues = Readonly<Record<string, unknown>>;

export interface Observation {
  readonly step: string;
  readonly seen: ContractValues;
}

const JSON_PATCH = "application/json-patch+json";
const MERGE = "application/merge-patch+json";
export const CONTRACT_NAMESPACE = "contract";
const PROTECTORS = `/apis/podseidon.kubewharf.io/v1alpha1/namespaces/${CONTRACT_NAMESPACE}/podprotectors`;
const PODS = `/api/v1/namespaces/${CONTRACT_NAMESPACE}/pods`;
const MAPS = `/api/v1/namespaces/${CONTRACT_NAMESPACE}/configmaps`;
const CELLS = { cells: [{ cellID: "one", aggregation: { totalReplicas: 1, availableReplicas: 1 } }] };
const SUMMARY = { totalReplicas: 1, aggregatedAvailableReplicas: 1, estimatedAvailableReplicas: 1 };

/** Runs the script. The namespace has to exist and to be empty. */
export async function observe(server: ContractServer): Promise<readonly Observation[]> {
  const notes = new Notes();
  const call = async (
    step: string,
    method: string,
    path: string,
    body?: unknown,
    type?: string,
  ): Promise<ContractValues> => {
    const { status, body: answer } = await server.request(method, path, body, type);
    notes.add(step, { code: status, ...shapeOf(answer) });
    return record(answer);
  };
  await compareAndSwap(call);
  await pages(call);
  await finalizers(call);
  await pods(call);
  await changesInPlace(call, PODS);
  await generatorWrites(call, { protectors: PROTECTORS, maps: MAPS }, protector("a"), "a");
  await backupMaps(call, MAPS);
  await watches(server, notes, call);
  const note = (step: string, seen: ContractValues): void => notes.add(step, seen);
  await shardedLists({ server, path: MAPS, note });
  return notes.renamed();
}

export type ContractCall = (
  step: string,
  method: string,
  path: string,
  body?: unknown,
  type?: string,
) => Promise<ContractValues>;

async function compareAndSwap(call: ContractCall): Promise<void> {
  const made = await call("create", "POST", PROTECTORS, protector("a"));
  await call("create again", "POST", PROTECTORS, protector("a"));
  await call("get", "GET", `${PROTECTORS}/a`);
  await call("get an absent object", "GET", `${PROTECTORS}/none`);
  const status = { ...CELLS, summary: SUMMARY };
  const written = await call("put status", "PUT", `${PROTECTORS}/a/status`, { ...made, status });
  await call("put status at an old version", "PUT", `${PROTECTORS}/a/status`, { ...made, status });
  await call("put status without a change", "PUT", `${PROTECTORS}/a/status`, written);
  const stranger = { ...record(written.metadata), uid: "00000000-0000-0000-0000-000000000000" };
  await call("put status of another UID", "PUT", `${PROTECTORS}/a/status`, { ...written, metadata: stranger });
  const spec = { ...record(written.spec), minAvailable: 5 };
  const edited = await call("put spec, status is left alone", "PUT", `${PROTECTORS}/a`, {
    ...written,
    spec,
    status: {},
  });
  await call("patch", "PATCH", `${PROTECTORS}/a`, { metadata: { annotations: { x: "1" } } }, MERGE);
  const old = { metadata: { resourceVersion: record(edited.metadata).resourceVersion }, spec: { minAvailable: 6 } };
  await call("patch at an old version", "PATCH", `${PROTECTORS}/a`, old, MERGE);
  await repairs(call, made);
  await call("patch status", "PATCH", `${PROTECTORS}/a/status`, { status: { summary: { totalReplicas: 2 } } }, MERGE);
  await call("patch an absent object", "PATCH", `${PROTECTORS}/none`, { spec: { minAvailable: 6 } }, MERGE);
}

/** The generator's repair of a spec: the version of the object is no matter, its generation is. */
async function repairs(call: ContractCall, made: ContractValues): Promise<void> {
  const { uid } = record(made.metadata);
  const operations = (generation: number) => [
    { op: "test", path: "/metadata/uid", value: uid },
    { op: "test", path: "/metadata/generation", value: generation },
    { op: "add", path: "/metadata/annotations/a~1b", value: "1" },
    { op: "remove", path: "/metadata/annotations/x" },
    { op: "replace", path: "/spec", value: { ...record(made.spec), minAvailable: 7 } },
  ];
  await call("JSON patch", "PATCH", `${PROTECTORS}/a`, operations(2), JSON_PATCH);
  await call("JSON patch of an old generation", "PATCH", `${PROTECTORS}/a`, operations(2), JSON_PATCH);
}

async function pages(call: ContractCall): Promise<void> {
  await call("a second one", "POST", PROTECTORS, protector("b"));
  await call("a third one", "POST", PROTECTORS, protector("c"));
  await call("list", "GET", PROTECTORS);
  const first = await call("first page", "GET", `${PROTECTORS}?limit=2`);
  await call("something is written", "PATCH", `${PROTECTORS}/c`, { spec: { minAvailable: 9 } }, MERGE);
  const token = encodeURIComponent(String(record(first.metadata).continue));
  await call("second page, as of the first", "GET", `${PROTECTORS}?limit=2&continue=${token}`);
  const version = String(record(first.metadata).resourceVersion);
  await call("not older than", "GET", `${PROTECTORS}?resourceVersion=${version}&resourceVersionMatch=NotOlderThan`);
  const future = String(Number(version) + 1_000_000);
  await call(
    "not older than the future",
    "GET",
    `${PROTECTORS}?resourceVersion=${future}&resourceVersionMatch=NotOlderThan`,
  );
}

async function finalizers(call: ContractCall): Promise<void> {
  const finalizer = ["podseidon.kubewharf.io/generator"];
  await call("add a finalizer", "PATCH", `${PROTECTORS}/b`, { metadata: { finalizers: finalizer } }, MERGE);
  const wrong = { preconditions: { uid: "00000000-0000-0000-0000-000000000000" } };
  await call("delete with another UID", "DELETE", `${PROTECTORS}/b`, wrong);
  await call("delete, held by its finalizer", "DELETE", `${PROTECTORS}/b`);
  await call("it is terminating", "GET", `${PROTECTORS}/b`);
  await call("release it", "PATCH", `${PROTECTORS}/b`, { metadata: { finalizers: null } }, MERGE);
  await call("it is gone", "GET", `${PROTECTORS}/b`);
  await call("delete an absent object", "DELETE", `${PROTECTORS}/b`);
}

async function pods(call: ContractCall): Promise<void> {
  for (const [name, node] of [
    ["free", undefined],
    ["bound", "node-1"],
    ["evicted", "node-1"],
  ] as const)
    await call(`pod ${name}`, "POST", PODS, pod(name, node));
  await call("dry run of a deletion", "DELETE", `${PODS}/free?dryRun=All`);
  await call("it is still there", "GET", `${PODS}/free`);
  await call("delete a pod without a node", "DELETE", `${PODS}/free`);
  await call("it is gone at once", "GET", `${PODS}/free`);
  await call("delete a pod on a node", "DELETE", `${PODS}/bound`);
  const terminating = await call("it is terminating", "GET", `${PODS}/bound`);
  await call("delete it again", "DELETE", `${PODS}/bound`);
  await call("unchanged by that", "GET", `${PODS}/bound`);
  const { uid } = record(terminating.metadata);
  await call("the kubelet's own", "DELETE", `${PODS}/bound`, { gracePeriodSeconds: 0, preconditions: { uid } });
  await call("gone", "GET", `${PODS}/bound`);
  const wrong = { preconditions: { uid: "00000000-0000-0000-0000-000000000000" } };
  await call("evict another UID", "POST", `${PODS}/evicted/eviction`, eviction("evicted", wrong));
  await call("dry run of an eviction", "POST", `${PODS}/evicted/eviction`, eviction("evicted", { dryRun: ["All"] }));
  await call("not evicted", "GET", `${PODS}/evicted`);
  await call("evict", "POST", `${PODS}/evicted/eviction`, eviction("evicted"));
  await call("evicted", "GET", `${PODS}/evicted`);
  await call("evict an absent pod", "POST", `${PODS}/none/eviction`, eviction("none"));
}

async function watches(server: ContractServer, notes: Notes, call: ContractCall): Promise<void> {
  const list = await server.request("GET", PROTECTORS);
  const from = String(record(record(list.body).metadata).resourceVersion);
  await call("created under watch", "POST", PROTECTORS, protector("d"));
  await call("changed under watch", "PATCH", `${PROTECTORS}/d`, { spec: { minAvailable: 4 } }, MERGE);
  await call("deleted under watch", "DELETE", `${PROTECTORS}/d`);
  const lines = await server.watch(`${PROTECTORS}?watch=true&resourceVersion=${from}&timeoutSeconds=2`);
  for (const line of lines) {
    const { type, object } = record(line);
    notes.add("watched", { type, ...shapeOf(object) });
  }
}

function protector(name: string): ContractValues {
  const spec = { minAvailable: 3, minReadySeconds: 0, selector: { matchLabels: { app: "web" } } };
  return { apiVersion: "podseidon.kubewharf.io/v1alpha1", kind: "PodProtector", metadata: { name }, spec };
}

function pod(name: string, nodeName: string | undefined): ContractValues {
  const spec = { containers: [{ name: "app", image: "app:1" }], ...(nodeName === undefined ? {} : { nodeName }) };
  return { apiVersion: "v1", kind: "Pod", metadata: { name, labels: { app: "web" } }, spec };
}

function eviction(name: string, deleteOptions?: ContractValues): ContractValues {
  const metadata = { name, namespace: CONTRACT_NAMESPACE };
  return {
    apiVersion: "policy/v1",
    kind: "Eviction",
    metadata,
    ...(deleteOptions === undefined ? {} : { deleteOptions }),
  };
}

/** The part of a response that is compared. */
function shapeOf(answer: unknown): ContractValues {
  const { kind, metadata, spec, status, reason, items, details, data } = record(answer);
  if (kind === "Status") {
    const { name: missing, kind: what } = reason === "NotFound" ? record(details) : {};
    return { kind, reason, missing, what };
  }
  if (Array.isArray(items)) {
    const { continue: token, remainingItemCount, resourceVersion } = record(metadata);
    const versions = items.map((item) => Number(record(record(item).metadata).resourceVersion));
    return {
      kind,
      items: items.map((item) => shapeOf(item)),
      hasMore: typeof token === "string" && token !== "",
      remaining: remainingItemCount,
      isAtLeastItsItems: versions.every((version) => version <= Number(resourceVersion)),
    };
  }
  const { name, uid, resourceVersion, generation, deletionTimestamp, finalizers } = record(metadata);
  return {
    ...{ kind, name, uid, resourceVersion, finalizers, isTerminating: deletionTimestamp !== undefined },
    ...(data === undefined ? {} : { data }),
    ...(kind === "Pod" ? { generation, ...podShape(record(spec), record(status)) } : {}),
    ...(kind === "PodProtector" ? { generation, minAvailable: record(spec).minAvailable, status: status ?? {} } : {}),
  };
}

/** The first container, and the conditions that no component of Kubernetes sets. */
function podShape({ containers }: ContractValues, { conditions }: ContractValues): ContractValues {
  const app = record(Array.isArray(containers) ? containers[0] : undefined);
  const listed = (Array.isArray(conditions) ? conditions : []).map(record);
  const own = listed.filter(({ type }) => String(type).includes("/"));
  return {
    image: app.image,
    cpu: record(record(app.resources).requests).cpu,
    conditions: own.map(({ type, status }) => `${String(type)}=${String(status)}`).sort(),
  };
}

function record(value: unknown): ContractValues {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? { ...value } : {};
}

class Notes {
  readonly #observations: Observation[] = [];

  add(step: string, seen: ContractValues): void {
    // Drops undefined fields, so that they equal absent ones.
    this.#observations.push({ step, seen: record(JSON.parse(JSON.stringify(seen))) });
  }

  /** Replaces versions by their rank among all observed versions, and UIDs by the order of their appearance. */
  renamed(): readonly Observation[] {
    const text = JSON.stringify(this.#observations);
    const versions = new Set([...text.matchAll(/"resourceVersion":"(\d+)"/g)].map(([, version]) => Number(version)));
    const ranks = new Map([...versions].sort((a, b) => a - b).map((version, rank) => [String(version), `v${rank}`]));
    const uids = new Map<string, string>();
    const renamed = text
      .replaceAll(/"resourceVersion":"(\d+)"/g, (_, version: string) => `"resourceVersion":"${ranks.get(version)}"`)
      .replaceAll(/"uid":"([^"]+)"/g, (_, uid: string) => {
        if (!uids.has(uid)) uids.set(uid, `u${uids.size}`);
        return `"uid":"${uids.get(uid)}"`;
      });
    const parsed: Observation[] = JSON.parse(renamed);
    return parsed;
  }
}
