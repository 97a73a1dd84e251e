/** Reserves all of 1,000 pods without settling: the size of the object, and the duration of the last reservation. */
import type { Cluster } from "../control-plane/cluster.ts";
import { createProtector, PROTECTORS } from "./fixture/cell-fixture.ts";
import { median, row } from "./fixture/figures.ts";
import { deleteReview, ReviewClient } from "./fixture/review-client.ts";

const PODS = 1000;
const SAMPLE = 50;
const TITLE = "1,000 of 1,000 reserved and never aggregated";
const TEMPLATE_HASH = "7d4b9c8f6b";

/** Measures one webhook at `url` (with its path) and returns lines of the table. */
export async function reservedObject(cluster: Cluster, url: string): Promise<string[][]> {
  const { origin } = new URL(url);
  const created = await createProtector(cluster.admin, "reserved", { app: "reserved" }, 0);
  await cluster.admin.call("PUT", `${PROTECTORS}/reserved/status`, withCount(created));
  const client = new ReviewClient(origin, cluster.identity.certificateAuthorityPem);
  const took: number[] = [];
  try {
    for (let index = 0; index < PODS; index += 1) {
      const suffix = index.toString(36).padStart(5, "0");
      const uid = `00000000-0000-4000-8000-${index.toString(16).padStart(12, "0")}`;
      const pod = {
        namespace: "default",
        name: `reserved-${TEMPLATE_HASH}-${suffix}`,
        uid,
        resourceVersion: String(1000 + index),
        labels: { app: "reserved" },
      };
      const answer = await client.review("cell", deleteReview(pod));
      if (!answer.allowed) throw new Error(`reservation ${index} was refused: ${answer.message}`);
      took.push(answer.tookMs);
    }
  } finally {
    client.close();
  }
  const text = (await cluster.admin.request("GET", `${PROTECTORS}/reserved`)).text;
  await cluster.admin.call("DELETE", `${PROTECTORS}/reserved`);
  // The first calls are slow because of connections and compilation, not because of the object.
  const first = median(took.slice(10, 10 + SAMPLE));
  const last = median(took.slice(-SAMPLE));
  const figures: readonly [string, number, number][] = [
    ["object KiB", text.length / 1024, 1],
    [`first ${SAMPLE} median ms`, first, 2],
    [`last ${SAMPLE} median ms`, last, 2],
    ["last against first", last / first, 2],
  ];
  return figures.map(([name, value, digits], index) =>
    row({ work: "reserved", title: index === 0 ? TITLE : "", name, own: value, upstream: Number.NaN, digits }),
  );
}

function withCount(created: unknown): unknown {
  const counted = ["totalReplicas", "availableReplicas", "readyReplicas", "scheduledReplicas", "runningReplicas"];
  const counts = Object.fromEntries(counted.map((name) => [name, PODS]));
  const aggregation = { ...counts, lastEventTime: "2026-01-01T00:00:00.000000Z", resourceVersion: "100000000" };
  const summary = {
    totalReplicas: PODS,
    aggregatedAvailableReplicas: PODS,
    estimatedAvailableReplicas: PODS,
    maxLatencyMillis: 0,
  };
  return {
    ...Object(created),
    status: { cells: [{ cellID: "cell", aggregation, admissionHistory: { buckets: [] } }], summary },
  };
}
