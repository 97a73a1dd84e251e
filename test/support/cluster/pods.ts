/** Pods that a test makes Ready. They are not scheduled, so that a deletion is final at once and needs no kubelet. */

import { field, items } from "../../../scripts/control-plane/api-client.ts";
import type { Cluster } from "../../../scripts/control-plane/cluster.ts";
import { eachAtMost } from "../../../shared/runtime/each-at-most.ts";

const CREATORS = 20;

interface TestPods {
  readonly namespace: string;
  readonly prefix: string;
  readonly count: number;
  readonly labels: Readonly<Record<string, string>>;
}

/** Creates the pods and makes each Ready; resolves to their names. */
export async function createReadyPods(cluster: Cluster, pods: TestPods): Promise<string[]> {
  const path = `/api/v1/namespaces/${pods.namespace}/pods`;
  const names = Array.from({ length: pods.count }, (_, index) => `${pods.prefix}-${index}`);
  await eachAtMost(CREATORS, names, async (name) => {
    const spec = { schedulerName: "none", containers: [{ name: "app", image: "app:1" }] };
    await cluster.admin.call("POST", path, {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name, labels: pods.labels },
      spec,
    });
    await setReady(cluster, pods.namespace, name, true);
  });
  return names;
}

export async function setReady(cluster: Cluster, namespace: string, name: string, ready: boolean): Promise<void> {
  const since = new Date().toISOString().replace(/\.\d+Z$/, "Z");
  const condition = (type: string, status: boolean): unknown => ({
    type,
    status: status ? "True" : "False",
    lastTransitionTime: since,
  });
  const conditions = [
    condition("PodScheduled", true),
    condition("Initialized", true),
    condition("ContainersReady", ready),
    condition("Ready", ready),
  ];
  await cluster.admin.call("PATCH", `/api/v1/namespaces/${namespace}/pods/${name}/status`, {
    status: { phase: "Running", conditions },
  });
}

/** Pods of the default namespace with this label `app` that are Ready and do not end. */
export async function readyPods(clusters: Iterable<Cluster>, app: string): Promise<number> {
  const path = `/api/v1/namespaces/default/pods?labelSelector=app%3D${app}`;
  const lists = await Promise.all([...clusters].map(({ admin }) => admin.get(path)));
  const pods = lists.flatMap((list) => items(list));
  return pods.filter((pod) => {
    const ready = items(field(pod, "status"), "conditions").some(
      (one) => field(one, "type") === "Ready" && field(one, "status") === "True",
    );
    return ready && field(pod, "metadata", "deletionTimestamp") === undefined;
  }).length;
}
