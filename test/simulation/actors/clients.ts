/** Clients that delete pods: single deletions, bursts, evictions and drains. Some of them retry a denial. */
import { PART_OF_LABEL, PART_OF_PODSEIDON } from "../../../shared/schema/annotations.ts";
import { HttpError } from "../../../webhook/http/call.ts";
import type { Json } from "../apiserver/etcd.ts";
import { metadataOf, text } from "../apiserver/objects.ts";
import type { Chance } from "../scenario/random.ts";
import { NAMESPACE, OWN_NAMESPACE } from "../scenario/scenario.ts";
import type { SimulatedCell } from "../world/cell.ts";
import type { World } from "../world/world.ts";
import { evictByTaint, TAINT_EVICTION } from "./taint-eviction.ts";

const POD_KIND = { group: "", version: "v1", kind: "Pod" };
const PODS = { group: "", version: "v1", resource: "pods" };
/** Users besides people that delete pods in a cluster. */
export const CONTROLLERS = [
  "system:serviceaccount:kube-system:namespace-controller",
  "system:serviceaccount:kube-system:generic-garbage-collector",
  "system:kube-scheduler",
  TAINT_EVICTION,
] as const;
const RETRY_MS = 1_000;
const MOST_RETRIES = 5;
const BURST_RATE = 0.06;
const FORCE_RATE = 0.1;
const FOREGROUND_RATE = 0.3;
const STRANGE_RATE = 0.05;

export function startClients(world: World): void {
  for (const cell of world.cells.values()) tick(world, world.chance.fork(), cell);
}

function tick(world: World, chance: Chance, cell: SimulatedCell): void {
  world.time.timers.after(chance.exponential(world.scenario.deletionEveryMs), () => {
    if (!world.faultsActive) return;
    if (chance.chance(STRANGE_RATE)) strange(chance, cell);
    if (chance.chance(STRANGE_RATE)) malformed(world, chance, cell.name);
    const burst = chance.chance(BURST_RATE) ? chance.between(4, 12) : 1;
    for (let index = 0; index < burst; index += 1) void disrupt(world, chance, cell);
    tick(world, chance, cell);
  });
}

/**
 * Rare requests: an eviction of a pod that does not exist, a deletecollection, a deletion of one of the project's own
 * pods.
 */
function strange(chance: Chance, { server }: SimulatedCell): void {
  const pods = `/api/v1/namespaces/${NAMESPACE}/pods`;
  const own = `/api/v1/namespaces/${OWN_NAMESPACE}/pods`;
  const call = (method: string, path: string, body: Json): Promise<unknown> =>
    server.handle({ method, path, body, contentType: "application/json", user: "client" });
  const kind = chance.pick(["nothing", "collection", "own"] as const);
  if (kind === "nothing")
    void call("POST", `${pods}/none/eviction`, { metadata: { name: "none", namespace: NAMESPACE } });
  else if (kind === "collection") void call("DELETE", `${pods}?labelSelector=tier%3Da`, {});
  else {
    const spec = { nodeName: "node", containers: [{ name: "webhook", image: "webhook:1" }] };
    const status = { phase: "Running", conditions: [{ type: "Ready", status: "True" }] };
    void call("POST", own, {
      metadata: { name: "webhook-0", labels: { [PART_OF_LABEL]: PART_OF_PODSEIDON } },
      spec,
      status,
    }).then(() => call("DELETE", `${own}/webhook-0`, {}));
  }
}

/**
 * A body that is no AdmissionReview, or an admission request for no disruption: it gets a response, and the replica
 * lives on (S13).
 */
function malformed(world: World, chance: Chance, cell: string): void {
  const serving = world.replicas.filter((replica) => replica.serving);
  if (serving.length === 0) return;
  const replica = chance.pick(serving);
  const kind = chance.pick(["malformed", "without oldObject", "another operation"] as const);
  const request = {
    ...{ uid: "strange", name: "web-1", namespace: NAMESPACE, userInfo: { username: "client" } },
    ...{ kind: POD_KIND, resource: PODS, requestKind: POD_KIND, requestResource: PODS },
    ...{ operation: kind === "another operation" ? "CONNECT" : "DELETE", object: null, oldObject: null, dryRun: false },
  };
  const admissionReview = JSON.stringify({ apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", request });
  const body =
    kind === "malformed" ? admissionReview.slice(0, chance.between(0, admissionReview.length - 1)) : admissionReview;
  void replica
    .handle({ cell, kind: "validate", body, timeout: "10s", isCallerGone: () => false })
    .then(
      ({ status }) => status,
      (error: unknown) => (error instanceof HttpError ? error.status : 500),
    )
    .then((status) => {
      const isRight = kind === "another operation" ? status === 200 : status >= 400 && status < 500;
      if (isRight) world.coverage.row(kind === "another operation" ? "other operations" : "malformed review");
      else world.violation("S13", `an admission request that is ${kind} got ${status}`);
    });
}

/** One deletion or eviction of one pod, repeated after a 429; resolves with the last status code. */
export async function disrupt(world: World, chance: Chance, cell: SimulatedCell, only?: string): Promise<number> {
  const pods = cell.server.etcd.range(`pods/${NAMESPACE}/`);
  if (pods.length === 0) return 404;
  const pod = pods.find(({ key }) => key === only) ?? chance.pick(pods);
  const name = pod.key.split("/")[2] ?? "";
  const uid = text(metadataOf(pod.value).uid) ?? "";
  const evict = chance.chance(world.scenario.evictionShare);
  const apiVersion = chance.chance(0.2) ? "policy/v1beta1" : "policy/v1";
  const user = chance.chance(0.2) ? chance.pick(CONTROLLERS) : "client";
  const isStranger = world.faultsActive && chance.chance(STRANGE_RATE);
  const isDry = world.faultsActive && chance.chance(world.scenario.faults.dryRunRate);
  if (isDry) world.coverage.fault("dryRun");
  const path = `/api/v1/namespaces/${NAMESPACE}/pods/${name}${evict ? "/eviction" : ""}`;
  const options: Json = {
    ...(chance.chance(FORCE_RATE) ? { gracePeriodSeconds: 0 } : {}),
    ...(chance.chance(0.3) ? { preconditions: { uid: isStranger ? "another" : uid } } : {}),
    ...(isDry ? { dryRun: ["All"] } : {}),
    ...(world.scenario.features.habits.has("finalizers") && chance.chance(FOREGROUND_RATE)
      ? { propagationPolicy: "Foreground" }
      : {}),
  };
  const body: Json = evict
    ? {
        apiVersion,
        kind: "Eviction",
        metadata: { name, namespace: NAMESPACE },
        ...(isDry || chance.chance(0.5) ? { deleteOptions: options } : {}),
      }
    : options;
  const retries = chance.between(0, MOST_RETRIES);
  const method = evict ? "POST" : "DELETE";
  const call = () => cell.server.handle({ method, path, body, contentType: "application/json", user });
  if (user === TAINT_EVICTION && world.scenario.features.isTaintEvictionReal) return evictByTaint(world, call);
  for (let attempt = 0; ; attempt += 1) {
    const response = await call();
    if (response.status !== 429 || attempt >= retries) return response.status;
    await new Promise<void>((resolve) => world.time.timers.after(RETRY_MS, resolve));
  }
}
