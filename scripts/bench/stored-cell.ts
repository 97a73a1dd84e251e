/**
 * Fills a cell of any size within seconds: creates one pod and one protector through the apiserver, and copies their
 * stored form under other names in etcd while the apiserver is stopped. The apiserver then starts with all of them, as
 * after a restart.
 */
import { randomUUID } from "node:crypto";
import { field } from "../control-plane/api-client.ts";
import type { Cluster } from "../control-plane/cluster.ts";
import type { BenchSize } from "./aggregator-measure.ts";
import {
  appOf,
  createPods,
  createProtectors,
  each,
  NAMESPACE,
  PODS,
  PROTECTORS,
  podName,
  protectorName,
} from "./cell-fixture.ts";

/** The number of the originals, which no copy has. */
const ORIGINAL = 999_999;
/** etcd takes 128 operations and 1.5 MiB in one transaction. */
const PUTS_AT_ONCE = 100;
const TRANSACTIONS_AT_ONCE = 8;
const PODS_KEY = `/registry/pods/${NAMESPACE}`;
const PROTECTORS_KEY = `/registry/podseidon.kubewharf.io/podprotectors/${NAMESPACE}`;

interface Original {
  readonly stored: Buffer;
  readonly uid: string;
}

/**
 * Stores pods and protectors as {@link createPods} and {@link createProtectors} create them, in place of those with the
 * same numbers.
 */
export async function storeCell(cluster: Cluster, { pods, protectors }: BenchSize): Promise<void> {
  const { admin } = cluster;
  await createProtectors(admin, ORIGINAL, ORIGINAL + 1);
  await createPods(admin, ORIGINAL, ORIGINAL + 1, () => ORIGINAL);
  const protector = await take(cluster, `${PROTECTORS}/${protectorName(ORIGINAL)}`, PROTECTORS_KEY);
  const pod = await take(cluster, `${PODS}/${podName(ORIGINAL)}`, PODS_KEY);
  const apiserver = cluster.processes["kube-apiserver"];
  await apiserver.kill();
  await store(cluster, protectors, (index) => [
    `${PROTECTORS_KEY}/${protectorName(index)}`,
    copyOf(protector, [
      [protectorName(ORIGINAL), protectorName(index)],
      [appOf(ORIGINAL), appOf(index)],
    ]),
  ]);
  await store(cluster, pods, (index) => [
    `${PODS_KEY}/${podName(index)}`,
    copyOf(pod, [
      [podName(ORIGINAL), podName(index)],
      [appOf(ORIGINAL), appOf(index % protectors)],
    ]),
  ]);
  await apiserver.start();
  for (const path of [PODS, PROTECTORS]) {
    await cluster.waitFor(
      `${path} to be served`,
      async () => (await admin.request("GET", `${path}?limit=1`)).status === 200,
    );
  }
}

/** Reads the original as it is stored, and removes it. */
async function take(cluster: Cluster, path: string, prefix: string): Promise<Original> {
  const uid = field(await cluster.admin.get(path), "metadata", "uid");
  const key = `${prefix}/${path.slice(path.lastIndexOf("/") + 1)}`;
  const stored = await cluster.etcd.value(key);
  if (stored === undefined || typeof uid !== "string") throw new Error(`nothing is stored at ${key}`);
  await cluster.etcd.deleteKey(key);
  return { stored, uid };
}

/** No replacement changes the length, so that the lengths within the stored protobuf stay right. */
function copyOf({ stored, uid }: Original, names: readonly (readonly [from: string, to: string])[]): Buffer {
  let text = stored.toString("latin1").replaceAll(uid, randomUUID());
  for (const [from, to] of names) text = text.replaceAll(from, to);
  const copy = Buffer.from(text, "latin1");
  if (copy.length !== stored.length) throw new Error("a copy has another length than its original");
  return copy;
}

async function store(
  { etcd }: Cluster,
  count: number,
  entry: (index: number) => readonly [key: string, value: Buffer],
): Promise<void> {
  const put = async (batch: number): Promise<void> => {
    const first = batch * PUTS_AT_ONCE;
    const length = Math.min(PUTS_AT_ONCE, count - first);
    await etcd.putAll(Array.from({ length }, (_, offset) => entry(first + offset)));
  };
  await each(Math.ceil(count / PUTS_AT_ONCE), put, TRANSACTIONS_AT_ONCE);
}
