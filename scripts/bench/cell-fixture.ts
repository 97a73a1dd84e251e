/** What the benchmarks run on: a bare cluster, pods and protectors. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { ApiserverClient } from "../control-plane/api-client.ts";
import { Cluster } from "../control-plane/cluster.ts";
import { root } from "../root.ts";

export const CRD = join(root, "crds/podseidon.kubewharf.io_podprotectors.yaml");

export const NAMESPACE = "default";
export const PROTECTORS = `/apis/podseidon.kubewharf.io/v1alpha1/namespaces/${NAMESPACE}/podprotectors`;
export const PODS = `/api/v1/namespaces/${NAMESPACE}/pods`;

/** Of one length, so that objects can be copied as they are stored (`stored-cell.ts`). */
const DIGITS = 6;

export function protectorName(index: number): string {
  return `p${String(index).padStart(DIGITS, "0")}`;
}

export function podName(index: number): string {
  return `pod-${String(index).padStart(DIGITS, "0")}`;
}

/** The value of the label `app` that a protector selects. */
export function appOf(protector: number): string {
  return `a${String(protector).padStart(DIGITS, "0")}`;
}

/** Calls in flight: about what the apiserver can answer. */
const CONCURRENCY = 48;

/** Runs `work(0)` to `work(count - 1)`, at most `concurrency` at a time. */
export async function each(
  count: number,
  work: (index: number) => Promise<void>,
  concurrency = CONCURRENCY,
): Promise<void> {
  let next = 0;
  const worker = async (): Promise<void> => {
    for (let index = next++; index < count; index = next++) await work(index);
  };
  await Promise.all(Array.from({ length: Math.min(concurrency, count) }, worker));
}

export function readiness(ready: boolean): unknown {
  const lastTransitionTime = `${new Date().toISOString().slice(0, 19)}Z`;
  const condition = (type: string, is: boolean): unknown => ({
    type,
    status: is ? "True" : "False",
    lastTransitionTime,
  });
  return {
    status: {
      phase: "Running",
      startTime: lastTransitionTime,
      conditions: [
        condition("Initialized", true),
        condition("Ready", ready),
        condition("ContainersReady", ready),
        condition("PodScheduled", true),
      ],
    },
  };
}

export async function createProtectors(admin: ApiserverClient, from: number, to: number): Promise<void> {
  await each(to - from, async (offset) => {
    const index = from + offset;
    await admin.call("POST", PROTECTORS, {
      apiVersion: "podseidon.kubewharf.io/v1alpha1",
      kind: "PodProtector",
      metadata: { name: protectorName(index) },
      spec: { minAvailable: 1, minReadySeconds: 0, selector: { matchLabels: { app: appOf(index) } } },
    });
  });
}

/** Pods `from` to `to - 1`, about 3 KB each as JSON, pod `i` under protector `protectorOf(i)`. */
export async function createPods(
  admin: ApiserverClient,
  from: number,
  to: number,
  protectorOf: (pod: number) => number,
): Promise<void> {
  const env = Array.from({ length: 20 }, (_, index) => ({ name: `VARIABLE_${index}`, value: "x".repeat(60) }));
  await each(to - from, async (offset) => {
    const index = from + offset;
    const name = podName(index);
    await admin.call("POST", PODS, {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name, labels: { app: appOf(protectorOf(index)) } },
      spec: { nodeName: "node-x", containers: [{ name: "c", image: "nginx", env }] },
    });
    await admin.call("PATCH", `${PODS}/${name}/status`, readiness(true));
  });
}

/** A cluster with the CRD and nothing else: no controllers, no service accounts. */
export async function bareCluster(): Promise<Cluster> {
  const cluster = await Cluster.start({
    name: "bench",
    controllerManager: false,
    scheduler: false,
    kwok: false,
    flags: { "kube-apiserver": { "disable-admission-plugins": "ServiceAccount" } },
  });
  await cluster.apply(readFileSync(CRD, "utf8"));
  const isServed = async (): Promise<boolean> => (await cluster.admin.request("GET", PROTECTORS)).status === 200;
  await cluster.waitFor("the CRD to be served", isServed);
  return cluster;
}
