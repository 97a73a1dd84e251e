/** ResourceQuotas whose status a test writes. */
import type { ApiAnswer } from "../../../scripts/control-plane/api-client.ts";
import type { Cluster } from "../../../scripts/control-plane/cluster.ts";

/** A dry run, again while the apiserver's admission has a quota from its watch without the status. */
export async function createUnderQuota(cluster: Cluster, path: string, body: unknown): Promise<ApiAnswer> {
  let answer: ApiAnswer | undefined;
  await cluster.waitFor("the apiserver to know its quotas", async () => {
    answer = await cluster.admin.request("POST", `${path}?dryRun=All`, body);
    return !answer.text.includes("status unknown for quota");
  });
  if (answer === undefined) throw new Error("nothing was asked");
  return answer;
}
