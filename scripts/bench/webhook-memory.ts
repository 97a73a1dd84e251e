/** Memory of a webhook replica that watches 10,000 protectors, after 100,000 and after 200,000 reviews. */
import { setTimeout as delay } from "node:timers/promises";
import type { Cluster } from "../control-plane/cluster.ts";
import { each, PROTECTORS } from "./fixture/cell-fixture.ts";
import type { WebhookContender } from "./fixture/contenders.ts";
import { processFigures, row } from "./fixture/figures.ts";
import { generateLoad } from "./fixture/load-generator.ts";

const PROTECTORS_COUNT = 10_000;
const REVIEWS = 100_000;
/** Both contenders get this long to receive the protectors. */
const CATCH_UP_MS = 15_000;
const TITLES = ["10,000 protectors watched, idle", "after 100,000 reviews", "after 200,000 reviews"];

export async function memoryAfterReviews(
  cluster: Cluster,
  generator: string,
  own: WebhookContender,
  upstream: WebhookContender | undefined,
): Promise<string[][]> {
  await createProtectors(cluster);
  await delay(CATCH_UP_MS);
  const other = upstream === undefined ? [] : await residentMegabytes(cluster, generator, upstream);
  const mine = await residentMegabytes(cluster, generator, own);
  return mine.map((value, index) => {
    const title = TITLES[index] ?? "";
    const figure = { work: index === 0 ? "idle" : "memory", title, name: "resident MB", digits: 0 };
    return row({ ...figure, own: value, upstream: other[index] ?? Number.NaN });
  });
}

/** Of the first replica: idle, and after each load. */
async function residentMegabytes(cluster: Cluster, generator: string, contender: WebhookContender): Promise<number[]> {
  const megabytes = (): number => processFigures(contender.pids()[0] ?? 0).residentBytes / 1024 / 1024;
  const after = [megabytes()];
  for (const _ of [1, 2]) {
    const load = ["-urls", contender.urls[0] ?? "", "-mode", "none", "-n", String(REVIEWS), "-c", "50", "-setup=false"];
    await generateLoad(generator, ["-api", cluster.url, "-token", cluster.identity.adminToken, ...load]);
    after.push(megabytes());
  }
  return after;
}

async function createProtectors(cluster: Cluster): Promise<void> {
  await each(PROTECTORS_COUNT, async (index) => {
    const matchLabels = { app: `memory-${index}`, tier: "web", env: "prod", team: `t${index % 20}` };
    await cluster.admin.call("POST", PROTECTORS, {
      apiVersion: "podseidon.kubewharf.io/v1alpha1",
      kind: "PodProtector",
      metadata: { name: `memory-${index}` },
      spec: { minAvailable: 1, minReadySeconds: 0, selector: { matchLabels } },
    });
  });
}
