/** Memory of a webhook replica that watches 10,000 protectors, after 100,000 and after 200,000 reviews. */
import { setTimeout as delay } from "node:timers/promises";
import type { Cluster } from "../control-plane/cluster.ts";
import { loadgen } from "./loadgen.ts";
import { processFigures } from "./process-figures.ts";
import { ratio, table } from "./table.ts";

const PROTECTORS = 10_000;
const REVIEWS = 100_000;
const CREATORS = 50;
/** Both sides get this long to receive the protectors; it is no part of a figure. */
const CATCH_UP_MS = 15_000;

interface Side {
  readonly name: string;
  readonly urls: readonly string[];
  readonly pids: () => readonly number[];
}

export async function memoryAfterReviews(
  cluster: Cluster,
  generator: string,
  ours: Side,
  theirs: Side | undefined,
): Promise<string> {
  await createProtectors(cluster);
  await delay(CATCH_UP_MS);
  const sides = theirs === undefined ? [ours] : [theirs, ours];
  const figures = new Map<Side, string[]>();
  const bytes = new Map<Side, number[]>();
  for (const side of sides) {
    const idle = processFigures(side.pids()[0] ?? 0).residentBytes;
    const after = [idle];
    for (const _ of [1, 2]) {
      await loadgen(generator, [
        "-api",
        cluster.url,
        "-token",
        cluster.identity.adminToken,
        "-urls",
        side.urls[0] ?? "",
        "-mode",
        "none",
        "-n",
        String(REVIEWS),
        "-c",
        "50",
        "-setup=false",
      ]);
      after.push(processFigures(side.pids()[0] ?? 0).residentBytes);
    }
    bytes.set(side, after);
    figures.set(
      side,
      after.map((one) => `${(one / 1024 / 1024).toFixed(0)} MB`),
    );
  }
  const rows = ["10,000 protectors watched, idle", "after 100,000 reviews", "after 200,000 reviews"].map(
    (title, index) => {
      const mine = bytes.get(ours)?.[index] ?? Number.NaN;
      const other = theirs === undefined ? Number.NaN : (bytes.get(theirs)?.[index] ?? Number.NaN);
      return [
        title,
        figures.get(ours)?.[index] ?? "-",
        theirs === undefined ? "-" : (figures.get(theirs)?.[index] ?? "-"),
        ratio(mine, other),
      ];
    },
  );
  return table(["resident memory of one replica", "this project", "upstream", "ratio"], rows);
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
