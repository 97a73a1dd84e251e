/** The two webhooks of a side-by-side run, three replicas each: this project's bundle and upstream's binary. */
import { join } from "node:path";
import type { Cluster } from "../control-plane/cluster.ts";
import { startWebhook, type WebhookReplica } from "../environment/webhook-process.ts";
import { startUpstreamWebhook, type UpstreamWebhook } from "./upstream.ts";

export interface WebhookContender {
  readonly name: string;
  /** Where each replica is called, with the path of its cell. */
  readonly urls: readonly string[];
  readonly pids: () => readonly number[];
}

const REPLICAS = [1, 2, 3];

export async function ourSide(cluster: Cluster): Promise<WebhookContender> {
  const replicas: WebhookReplica[] = [];
  for (const index of REPLICAS) {
    replicas.push(
      await startWebhook({
        name: `webhook-${index}`,
        directory: join(cluster.directory, "ours"),
        authority: cluster,
        cores: { core: cluster.kubeconfig },
        cells: { cell: "" },
      }),
    );
  }
  return {
    name: "this project",
    urls: replicas.map((one) => `${one.url}/webhook/cell`),
    pids: () => replicas.map((one) => one.component.process.pid ?? 0),
  };
}

export async function theirSide(binary: string, cluster: Cluster): Promise<WebhookContender> {
  const replicas: UpstreamWebhook[] = [];
  for (const index of REPLICAS) replicas.push(await startUpstreamWebhook(binary, cluster, `upstream-webhook-${index}`));
  return {
    name: "upstream",
    urls: replicas.map((one) => `${one.url}/webhook/cell`),
    pids: () => replicas.map((one) => one.process.pid ?? 0),
  };
}
