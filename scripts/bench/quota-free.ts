/**
 * The time from the end of a reserved pod until the protector neither counts the pod nor has its reservation, so that
 * the quota is free for the next disruption. Webhook and aggregator run with their defaults, this project's pair and
 * upstream's.
 */
import { setTimeout as delay } from "node:timers/promises";
import type { Cluster } from "../control-plane/cluster.ts";
import {
  createPods,
  createProtectors,
  each,
  PODS,
  PROTECTORS,
  podName,
  protectorName,
} from "./fixture/cell-fixture.ts";
import { type AggregatorContender, CELL } from "./fixture/contenders.ts";
import { quantile, row } from "./fixture/figures.ts";
import { ProtectorWatch } from "./fixture/protector-watch.ts";
import { deleteReview, ReviewClient } from "./fixture/review-client.ts";

/** Protectors of two pods each, of which one is deleted. */
const SAMPLES = 150;
const PODS_EACH = 2;
/** Time between two deletions; not a multiple of any interval in the components. */
const PACE_MS = 73;
const COUNTED_WITHIN_MS = 90_000;
const FREE_WITHIN_MS = 60_000;

export interface Pair {
  /** `https://HOST:PORT` of a webhook. */
  readonly webhook: string;
  readonly aggregator: AggregatorContender;
}

/** Measures both pairs, one after the other; returns lines of the table. */
export async function quotaFreeRows(cluster: Cluster, own: Pair, upstream: Pair | undefined): Promise<string[][]> {
  const other = upstream === undefined ? [] : await quotaFree(cluster, upstream);
  const mine = await quotaFree(cluster, own);
  const line = (title: string, name: string, q: number): string[] =>
    row({ work: "free", title, name, own: quantile(mine, q), upstream: quantile(other, q), digits: 0 });
  return [line(`quota free again after the pod is gone, ${mine.length} pods`, "p50 ms", 0.5), line("", "p99 ms", 0.99)];
}

/**
 * Milliseconds of each sample. Deletes all protectors and pods before and after; rejects when the quota does not become
 * free.
 */
async function quotaFree(cluster: Cluster, { webhook, aggregator }: Pair): Promise<readonly number[]> {
  await empty(cluster);
  await createProtectors(cluster.admin, 0, SAMPLES);
  await createPods(cluster.admin, 0, SAMPLES * PODS_EACH, (pod) => pod % SAMPLES);
  const { process } = await aggregator.process();
  await process.start();
  const client = new ReviewClient(webhook, cluster.identity.certificateAuthorityPem);
  try {
    await using watch = await ProtectorWatch.start(cluster.kubeconfig, CELL);
    const isCounted = (index: number): boolean => watch.available(protectorName(index)) === PODS_EACH;
    const all = Array.from({ length: SAMPLES }, (_, index) => index);
    if (!(await watch.until(() => all.every(isCounted), COUNTED_WITHIN_MS)))
      throw new Error(`${aggregator.name} did not count all pods within ${COUNTED_WITHIN_MS} ms`);
    return await Promise.all(
      all.map(async (index) => {
        await delay(index * PACE_MS);
        return sample(cluster, client, watch, index);
      }),
    );
  } finally {
    client.close();
    await process.kill("SIGKILL");
    await empty(cluster);
  }
}

async function sample(cluster: Cluster, client: ReviewClient, watch: ProtectorWatch, index: number): Promise<number> {
  const name = podName(index);
  const { metadata } = Object(await cluster.admin.get(`${PODS}/${name}`));
  const { namespace, uid, resourceVersion, labels } = metadata;
  const answer = await client.review(CELL, deleteReview({ namespace, name, uid, resourceVersion, labels }));
  if (!answer.allowed) throw new Error(`the deletion of ${name} was denied: ${answer.message}`);
  await cluster.admin.call("DELETE", `${PODS}/${name}`, { gracePeriodSeconds: 0, preconditions: { uid } });
  const goneMs = performance.now();
  const isFree = (): boolean =>
    watch.available(protectorName(index)) === PODS_EACH - 1 && watch.reserved(protectorName(index)) === 0;
  if (!(await watch.until(isFree, FREE_WITHIN_MS)))
    throw new Error(`${FREE_WITHIN_MS} ms after the end of ${name} its quota was not free`);
  return performance.now() - goneMs;
}

async function empty(cluster: Cluster): Promise<void> {
  await cluster.admin.call("DELETE", PROTECTORS);
  await each(SAMPLES * PODS_EACH, async (index) => {
    await cluster.admin.request("DELETE", `${PODS}/${podName(index)}`, { gracePeriodSeconds: 0 });
  });
}
