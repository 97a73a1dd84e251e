/**
 * A real cluster, core and cell at once, with aggregator processes; the test writes reservations in place of a webhook.
 */
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { BARE, Cluster, type ClusterOptions } from "../../../scripts/control-plane/cluster.ts";
import { Component } from "../../../scripts/environment/component.ts";
import { type Pod, parsePod } from "../../../shared/schema/pod.ts";
import type { Bucket, CellStatus } from "../../../shared/schema/podprotector.ts";
import { readProtector } from "./protectors.ts";

const CELL = "cell";
const CRD = resolve(import.meta.dirname, "../../../crds/podseidon.kubewharf.io_podprotectors.yaml");
const PROTECTORS = "/apis/podseidon.kubewharf.io/v1alpha1/namespaces/default/podprotectors";

/** Without controllers, so that only the test changes pods. */
export async function startCluster(options: ClusterOptions = {}): Promise<Cluster> {
  const cluster = await Cluster.start({ ...BARE, ...options });
  await cluster.apply(readFileSync(CRD, "utf8"));
  await cluster.waitFor("the CRD", async () => (await cluster.admin.request("GET", PROTECTORS)).status === 200);
  return cluster;
}

export async function startAggregator(cluster: Cluster, name: string, ...args: string[]): Promise<Component> {
  return await Component.start({
    kind: "aggregator",
    name,
    directory: join(cluster.directory, "aggregators"),
    args: [
      ...["--cell-id", CELL, "--kubeconfig", cluster.kubeconfig],
      ...(args.includes("--core") ? [] : ["--core", `core=${cluster.kubeconfig}`]),
      ...["--leader-elect-namespace", "default", "--settle-period", "3s"],
      ...args,
    ],
  });
}

export async function entryOf(cluster: Cluster, name: string): Promise<CellStatus | undefined> {
  const { status } = await readProtector(cluster, "default", name);
  return status?.cells.find(({ cellID }) => cellID === CELL);
}

/** Waits until `isMet` is true of the entry; rejects with the last entry. */
export async function waitForEntry(
  cluster: Cluster,
  name: string,
  what: string,
  isMet: (entry: CellStatus) => boolean,
): Promise<CellStatus> {
  let last: CellStatus | undefined;
  try {
    await cluster.waitFor(`${name}: ${what}`, async () => {
      last = await entryOf(cluster, name);
      return last !== undefined && isMet(last);
    });
  } catch (error) {
    throw new Error(`${String(error)}; it was ${JSON.stringify(last)}`, { cause: error });
  }
  if (last === undefined) throw new Error("unreachable");
  return last;
}

export async function readPod(cluster: Cluster, name: string): Promise<Pod> {
  return parsePod(await cluster.admin.get(`/api/v1/namespaces/default/pods/${name}`));
}

/** Reserves the deletion of pods as a webhook does, with a compare-and-swap on the status. */
export async function admit(
  cluster: Cluster,
  protector: string,
  pods: readonly Pod[],
  change: Partial<Bucket> = {},
): Promise<void> {
  for (;;) {
    const object = await readProtector(cluster, "default", protector);
    const startTime = new Date().toISOString();
    const added = pods.map(
      (pod, index): Bucket => ({
        startTime,
        podUID: pod.uid,
        podName: pod.name,
        podResourceVersion: pod.resourceVersion,
        operation: "DELETE",
        nonce: `test-${pod.name}-${index}`,
        paid: true,
        ...change,
      }),
    );
    const cells = (object.status?.cells ?? []).map((cell) =>
      cell.cellID === CELL
        ? { ...cell, admissionHistory: { buckets: [...(cell.admissionHistory?.buckets ?? []), ...added] } }
        : cell,
    );
    const { name, namespace, uid, resourceVersion } = object.metadata;
    const response = await cluster.admin.request("PUT", `${PROTECTORS}/${protector}/status`, {
      apiVersion: "podseidon.kubewharf.io/v1alpha1",
      kind: "PodProtector",
      metadata: { name, namespace, uid, resourceVersion },
      status: { ...object.status, cells },
    });
    if (response.status === 200) return;
    if (response.status !== 409) throw new Error(`admit: HTTP ${response.status}: ${response.text}`);
  }
}

export function buckets(entry: CellStatus | undefined): readonly Bucket[] {
  return entry?.admissionHistory?.buckets ?? [];
}
