/** What the accounts of cells write in a core. */
import type { ApiAnswer, ApiserverClient } from "../../../scripts/control-plane/api-client.ts";
import type { Cluster } from "../../../scripts/control-plane/cluster.ts";
import type { PodProtector } from "../../../shared/schema/podprotector.ts";
import { readProtector } from "./protectors.ts";

const PROTECTORS = "/apis/podseidon.kubewharf.io/v1alpha1/namespaces/shop/podprotectors";

export type Fields = Readonly<Record<string, unknown>>;

export const SUMMARY = { totalReplicas: 2, aggregatedAvailableReplicas: 2, estimatedAvailableReplicas: 1 };

export const bucket = {
  startTime: "2026-01-01T00:00:00.000000Z",
  podUID: "b1",
  podName: "web-b1",
  counter: 1,
  operation: "EVICT",
};
/** What the aggregator and the webhook of cell b have written. */
export const ENTRY_OF_B = {
  cellID: "b",
  aggregation: { totalReplicas: 2, availableReplicas: 2, resourceVersion: "5", epoch: 1 },
  admissionHistory: { buckets: [bucket] },
};

/** PUT of the status, again after each conflict: the components write, too. */
export async function writeStatus(
  core: Cluster,
  client: ApiserverClient,
  name: string,
  change: (protector: PodProtector) => unknown,
): Promise<ApiAnswer> {
  for (;;) {
    const protector = await readProtector(core, "shop", name);
    const body = { ...protector, status: change(protector) };
    const answer = await client.request("PUT", `${PROTECTORS}/${name}/status`, body);
    if (answer.status !== 409) return answer;
  }
}

/** The status with another entry of one cell; undefined removes it. */
export function withEntry(
  { status }: PodProtector,
  cellID: string,
  change: (entry: Fields) => Fields | undefined,
): Fields {
  const cells = (status?.cells ?? []).filter((cell) => cell.cellID !== cellID);
  const entry = change(status?.cells.find((cell) => cell.cellID === cellID) ?? { cellID });
  return { summary: SUMMARY, ...status, cells: entry === undefined ? cells : [...cells, entry] };
}

/** Refusals by policies since the apiserver began. */
export async function refusals(core: Cluster): Promise<number> {
  const { text } = await core.admin.request("GET", "/metrics");
  const lines = text
    .split("\n")
    .filter((line) => /^apiserver_validating_admission_policy_check_total\{.*"deny"/.test(line));
  return lines.reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0);
}

/** The status with one more condition. */
export const withCondition =
  (type: string) =>
  ({ status }: PodProtector): Fields => ({
    ...status,
    conditions: [
      ...(status?.conditions ?? []).filter((one) => one.type !== type),
      { type, status: "True", reason: "No", message: "", lastTransitionTime: bucket.startTime },
    ],
  });
