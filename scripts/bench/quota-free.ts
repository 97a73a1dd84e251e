/**
 * From the end of a reserved pod to the moment at which its protector says so: the reservation is gone and the pod is not counted any
 * more, so that what the pod held can be used for the next. Webhook and aggregator at their defaults, this project's pair and upstream's.
 */
import { setTimeout as delay } from "node:timers/promises";
import type { Cluster } from "../control-plane/cluster.ts";
import { type AggregatorContender, CELL } from "./aggregator-contenders.ts";
import { createPods, createProtectors, each, PODS, PROTECTORS, podName, protectorName } from "./cell-fixture.ts";
import { row } from "./goals.ts";
import { ProtectorWatch } from "./protector-watch.ts";
import { deleteReview, ReviewClient } from "./review-client.ts";
import { quantile } from "./table.ts";

/** Protectors of two pods each, of which one is deleted. */
const SAMPLES = 150;
const PODS_EACH = 2;
/** Between one deletion and the next; no multiple of anyone's interval. */
const PACE_MS = 73;
const COUNTED_WITHIN_MS = 90_000;
const FREE_WITHIN_MS = 60_000;

export interface Pair {
  /** `https://HOST:PORT` of a webhook. */
  readonly webhook: string;
  readonly aggregator: AggregatorContender;
}

export interface QuotaFree {
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly samples: number;
}

/** Both pairs, one after the other, as lines of the table. */
export async function quotaFreeRows(cluster: Cluster, ours: Pair, theirs: Pair | undefined): Promise<string[][]> {
  const other = theirs === undefined ? undefined : await quotaFree(cluster, theirs);
  const mine = await quotaFree(cluster, ours);
  const line = (title: string, name: string, of: (figures: QuotaFree) => number): string[] =>
    row({ work: "free", title, name, ours: of(mine), theirs: other === undefined ? Number.NaN : of(other), digits: 0 });
  return [
    line(`quota free again after the pod is gone, ${mine.samples} pods`, "p50 ms", ({ p50Ms }) => p50Ms),
    line("", "p99 ms", ({ p99Ms }) => p99Ms),
  ];
}

/** Measures one pair on a cluster whose protectors and pods it deletes before and after. Rejects when the quota never gets free. */
export async function quotaFree(cluster: Cluster, { webhook, aggregator }: Pair): Promise<QuotaFree> {
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
    const tookMs = await Promise.all(
      all.map(async (index) => {
        await delay(index * PACE_MS);
        return sample(cluster, client, watch, index);
      }),
    );
    return { p50Ms: quantile(tookMs, 0.5), p99Ms: quantile(tookMs, 0.99), samples: tookMs.length };
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
  if (!answer.allowed) throw new Error(`the deletion of ${name} was refused: ${answer.message}`);
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
