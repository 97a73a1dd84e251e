/** Creates and deletes pods all the time, during something that must not fail a single call. */
import { setTimeout as delay } from "node:timers/promises";
import { ApiserverClient } from "../../../scripts/control-plane/api-client.ts";
import type { Cluster } from "../../../scripts/control-plane/cluster.ts";
import { setReady } from "./pods.ts";

/** Of each client between two pods: the load lasts for minutes, and is to be steady, not heavy. */
const PAUSE_MS = 250;
const PODS = "/api/v1/namespaces/default/pods";

export class DeletionLoad {
  /** Number of deletions that got a response. */
  deletions = 0;
  /** Responses to deletions that failed. */
  readonly oddities: string[] = [];
  readonly #cluster: Cluster;
  readonly #labels: Readonly<Record<string, string>> | undefined;
  readonly #work: readonly Promise<void>[];
  #running = true;

  /** Starts at once, with as many clients as `workers`. Pods with `labels` are ready when they are deleted. */
  constructor(cluster: Cluster, workers: number, labels?: Readonly<Record<string, string>>) {
    this.#cluster = cluster;
    this.#labels = labels;
    this.#work = Array.from({ length: workers }, (_, index) => this.#deleteAllTheTime(index));
  }

  /** Waits for so many more deletions. */
  async more(count: number): Promise<void> {
    const until = this.deletions + count;
    await this.#cluster.waitFor("more deletions", async () => this.deletions > until);
  }

  /** Resolves after the last response; rejects when a client could not make its call. */
  async stop(): Promise<void> {
    this.#running = false;
    await Promise.all(this.#work);
  }

  async #deleteAllTheTime(worker: number): Promise<void> {
    const { certificateAuthorityPem, adminToken } = this.#cluster.identity;
    const client = new ApiserverClient({ url: this.#cluster.url, certificateAuthorityPem, token: adminToken });
    for (let round = 0; this.#running; round++) {
      const name = `load-${worker}-${round}`;
      const labels = this.#labels;
      const spec = { schedulerName: "none", containers: [{ name: "app", image: "app:1" }] };
      await client.call("POST", PODS, { apiVersion: "v1", kind: "Pod", metadata: { name, labels }, spec });
      if (labels !== undefined) await setReady(this.#cluster, "default", name, true);
      const answer = await client.request("DELETE", `${PODS}/${name}`);
      this.deletions++;
      if (answer.status !== 200) this.oddities.push(`${answer.status}: ${answer.text}`);
      await delay(PAUSE_MS);
    }
    client.close();
  }
}
