/**
 * Nodes that are deleted, mostly after the webhooks were asked, and the pod garbage collector: it sets the pods of a
 * node that is gone to Failed, by a status write that is reviewed, and deletes them. A denial is met again in the next
 * round, as long as the pod is there.
 */
import type { Etcd, Json } from "../apiserver/etcd.ts";
import { isForced, metadataOf, record, text } from "../apiserver/objects.ts";
import type { Chance } from "../scenario/random.ts";
import { NAMESPACE } from "../scenario/scenario.ts";
import type { SimulatedCell } from "../world/cell.ts";
import type { World } from "../world/world.ts";
import type { InFlightRequest } from "./admission-requests.ts";

/** User of the pod garbage collector. */
const COLLECTOR = "system:serviceaccount:kube-system:pod-garbage-collector";
const NODE_KIND = { group: "", version: "v1", kind: "Node" };
const NODES = { group: "", version: "v1", resource: "nodes" };
const STRATEGIC = "application/strategic-merge-patch+json";
/** A node with few pods can be spared more often. */
export const PODS_OF_NODE = 3;
const QUARANTINE_MEAN_MS = 20_000;
const ROUND_MS = 20_000;
const RETRY_MS = 2_000;
const MOST_RETRIES = 3;
/** Somebody removed the node without asking: a webhook configuration without the rule, or etcd. */
const UNASKED_RATE = 0.3;
const DRY_RATE = 0.1;

export function startNodeDeletions(world: World): void {
  const { nodesEveryMs } = world.scenario.features;
  if (nodesEveryMs > 0) for (const cell of world.cells.values()) tick(world, world.chance.fork(), cell, nodesEveryMs);
}

function tick(world: World, chance: Chance, cell: SimulatedCell, everyMs: number): void {
  world.time.timers.after(chance.exponential(everyMs), () => {
    if (!world.faultsActive) return;
    world.coverage.fault("nodes");
    const pods = cell.server.etcd.range(`pods/${NAMESPACE}/`);
    if (pods.length > 0)
      void deleteNode(world, chance, cell, text(record(chance.pick(pods).value.spec).nodeName) ?? "");
    tick(world, chance, cell, everyMs);
  });
}

async function deleteNode(world: World, chance: Chance, cell: SimulatedCell, node: string): Promise<void> {
  const isAsked = !chance.chance(UNASKED_RATE);
  const isDry = isAsked && chance.chance(DRY_RATE);
  const retries = chance.between(0, MOST_RETRIES);
  for (let attempt = 0; isAsked; attempt += 1) {
    const verdict = await cell.admission.validate(deletionOf(world, node, isDry));
    if (verdict.allowed) break;
    world.coverage.rule("nodes: a deletion is denied");
    if (attempt >= retries || !world.faultsActive) return;
    await new Promise<void>((resolve) => world.time.timers.after(RETRY_MS, resolve));
  }
  if (isDry) return;
  world.coverage.rule(isAsked ? "nodes: a deletion is allowed" : "nodes: one is removed unasked");
  const orphans = cell.server.etcd
    .range(`pods/${NAMESPACE}/`)
    .filter(({ value }) => record(value.spec).nodeName === node)
    .map(({ key, value }) => ({ name: key.split("/")[2] ?? "", uid: text(metadataOf(value).uid) ?? "" }));
  world.time.timers.after(chance.exponential(QUARANTINE_MEAN_MS), () => {
    for (const { name, uid } of orphans) void collect(world, cell, name, uid);
  });
}

/** The deletion of a node is a request for the deletion of each of its pods. */
export function requestsOfNode(etcd: Etcd, cell: string, { resource, name }: Json, askedMs: number): InFlightRequest[] {
  if (record(resource).resource !== "nodes") return [];
  return etcd
    .range("pods/")
    .filter(({ value }) => record(value.spec).nodeName === name)
    .map(({ key, value, revision }) => ({
      ...{ cell, uid: text(metadataOf(value).uid) ?? "", key, operation: "DELETE", revision },
      ...{ forced: isForced(value), askedMs, state: "asked" },
    }));
}

export function deletionOf(world: World, name: string, dryRun: boolean): Json {
  return {
    uid: world.time.random.token(),
    userInfo: { username: "cloud", groups: [] },
    ...{ kind: NODE_KIND, resource: NODES, requestKind: NODE_KIND, requestResource: NODES },
    ...{ name, operation: "DELETE", dryRun, object: null },
    oldObject: { apiVersion: "v1", kind: "Node", metadata: { name } },
    options: { kind: "DeleteOptions", apiVersion: "meta.k8s.io/v1" },
  };
}

/** One round of the collector for one pod, and the next one after a failure. */
async function collect(world: World, cell: SimulatedCell, name: string, uid: string): Promise<void> {
  if (!world.faultsActive) return;
  const path = `/api/v1/namespaces/${NAMESPACE}/pods/${name}`;
  const condition = { type: "DisruptionTarget", status: "True", reason: "DeletionByPodGC" };
  const body = { metadata: { uid }, status: { phase: "Failed", conditions: [condition] } };
  const failed = await cell.server.handle({
    ...{ method: "PATCH", path: `${path}/status`, body, contentType: STRATEGIC, user: COLLECTOR },
  });
  // Gone, or another pod has the name.
  if (failed.status === 404 || failed.status === 409 || failed.status === 422) return;
  if (failed.status < 300) {
    world.coverage.rule("nodes: a pod is collected");
    const options = { gracePeriodSeconds: 0, preconditions: { uid } };
    const user = COLLECTOR;
    await cell.server.handle({ method: "DELETE", path, body: options, contentType: "application/json", user });
    return;
  }
  if (failed.status === 429) world.coverage.rule("nodes: a collection is denied");
  world.time.timers.after(ROUND_MS, () => void collect(world, cell, name, uid));
}
