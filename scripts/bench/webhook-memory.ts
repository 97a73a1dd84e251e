/** Memory of a webhook replica that watches 10,000 protectors, after 100,000 and after 200,000 reviews. */
import { setTimeout as delay } from "node:timers/promises";
import type { Cluster } from "../control-plane/cluster.ts";
import { row } from "./goals.ts";
import { loadgen } from "./loadgen.ts";
import { processFigures } from "./process-figures.ts";
import type { WebhookContender } from "./webhook-contenders.ts";

const PROTECTORS = 10_000;
const REVIEWS = 100_000;
const CREATORS = 50;
/** Both sides get this long to receive the protectors; it is no part of a figure. */
const CATCH_UP_MS = 15_000;
const TITLES = ["10,000 protectors watched, idle", "after 100,000 reviews", "after 200,000 reviews"];

export async function memoryAfterReviews(
  cluster: Cluster,
  generator: string,
  ours: WebhookContender,
  theirs: WebhookContender | undefined,
): Promise<string[][]> {
  await createProtectors(cluster);
  await delay(CATCH_UP_MS);
  const other = theirs === undefined ? [] : await residentMegabytes(cluster, generator, theirs);
  const mine = await residentMegabytes(cluster, generator, ours);
  return mine.map((value, index) => {
    const title = TITLES[index] ?? "";
    const figure = { work: index === 0 ? "idle" : "memory", title, name: "resident MB", digits: 0 };
    return row({ ...figure, ours: value, theirs: other[index] ?? Number.NaN });
  });
}

/** Of the first replica: idle, and after each load. */
async function residentMegabytes(cluster: Cluster, generator: string, side: WebhookContender): Promise<number[]> {
  const megabytes = (): number => processFigures(side.pids()[0] ?? 0).residentBytes / 1024 / 1024;
  const after = [megabytes()];
  for (const _ of [1, 2]) {
    const load = ["-urls", side.urls[0] ?? "", "-mode", "none", "-n", String(REVIEWS), "-c", "50", "-setup=false"];
    await loadgen(generator, ["-api", cluster.url, "-token", cluster.identity.adminToken, ...load]);
    after.push(megabytes());
  }
  return after;
}

async function createProtectors(cluster: Cluster): Promise<void> {
  const path = "/apis/podseidon.kubewharf.io/v1alpha1/namespaces/default/podprotectors";
  let next = 0;
  const worker = async (): Promise<void> => {
    for (let index = next++; index < PROTECTORS; index = next++) {
      const matchLabels = { app: `memory-${index}`, tier: "web", env: "prod", team: `t${index % 20}` };
      const spec = { minAvailable: 1, minReadySeconds: 0, selector: { matchLabels } };
      await cluster.admin.call("POST", path, {
        apiVersion: "podseidon.kubewharf.io/v1alpha1",
        kind: "PodProtector",
        metadata: { name: `memory-${index}` },
        spec,
      });
    }
  };
  await Promise.all(Array.from({ length: CREATORS }, worker));
}
