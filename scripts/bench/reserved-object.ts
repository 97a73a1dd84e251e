/** 1,000 of 1,000 pods reserved and never accounted for: how large the object gets, and what the last reservation costs. */
import type { Cluster } from "../control-plane/cluster.ts";
import { deleteReview, ReviewClient } from "./review-client.ts";
import { median, ratio, table } from "./table.ts";

const PODS = 1000;
const SAMPLE = 50;
const TEMPLATE_HASH = "7d4b9c8f6b";

/** Measures one webhook at `url` (with its path) and returns a table. */
export async function reservedObject(cluster: Cluster, url: string): Promise<string> {
  const { origin } = new URL(url);
  const base = "/apis/podseidon.kubewharf.io/v1alpha1/namespaces/default/podprotectors";
  const spec = { minAvailable: 0, minReadySeconds: 0, selector: { matchLabels: { app: "reserved" } } };
  const created = await cluster.admin.call("POST", base, {
    apiVersion: "podseidon.kubewharf.io/v1alpha1",
    kind: "PodProtector",
    metadata: { name: "reserved" },
    spec,
  });
  await cluster.admin.call("PUT", `${base}/reserved/status`, withCount(created));
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
  const text = (await cluster.admin.request("GET", `${base}/reserved`)).text;
  await cluster.admin.call("DELETE", `${base}/reserved`);
  // The very first calls pay for connections and compilation, not for the object.
  const first = median(took.slice(10, 10 + SAMPLE));
  const last = median(took.slice(-SAMPLE));
  return table(
    ["1,000 of 1,000 reserved, never accounted for", "figure"],
    [
      ["object (JSON with managedFields)", `${(text.length / 1024).toFixed(1)} KiB`],
      [`first ${SAMPLE} reservations, median`, `${first.toFixed(2)} ms`],
      [`last ${SAMPLE} reservations, median`, `${last.toFixed(2)} ms`],
      ["last against first", ratio(last, first)],
    ],
  );
}

function withCount(created: unknown): unknown {
  const counts = {
    totalReplicas: PODS,
    availableReplicas: PODS,
    readyReplicas: PODS,
    scheduledReplicas: PODS,
    runningReplicas: PODS,
  };
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
