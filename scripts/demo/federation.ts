/**
 * A federation in a few lines: each worker gets an equal share of the replicas of each Deployment in the core, as a
 * Deployment whose owner is an object of the federation's own kind. Not part of the project; represents the user's
 * federation.
 */
import { setTimeout as delay } from "node:timers/promises";
import { field, items } from "../control-plane/api-client.ts";
import type { Cluster } from "../control-plane/cluster.ts";

export const NAMESPACE = "shop";
export const WORKLOAD = "web";
export const OWNER_CRD = "workloads.fleet.example.com";

const ROUND_MS = 300;
const DEPLOYMENTS = `/apis/apps/v1/namespaces/${NAMESPACE}/deployments`;
const OWNERS = `/apis/fleet.example.com/v1/namespaces/${NAMESPACE}/workloads`;
const APPLY = { contentType: "application/apply-patch+yaml" };

/**
 * The kind whose objects own the workers' Deployments. The deletion of the kind deletes everything that its objects
 * own.
 */
export const ownerCrd = {
  apiVersion: "apiextensions.k8s.io/v1",
  kind: "CustomResourceDefinition",
  metadata: { name: OWNER_CRD },
  spec: {
    group: "fleet.example.com",
    names: { kind: "Workload", listKind: "WorkloadList", plural: "workloads", singular: "workload" },
    scope: "Namespaced",
    versions: [
      {
        name: "v1",
        served: true,
        storage: true,
        schema: { openAPIV3Schema: { type: "object", "x-kubernetes-preserve-unknown-fields": true } },
      },
    ],
  },
};

export class Federation {
  readonly #core: Cluster;
  readonly #workers: readonly Cluster[];
  #running: Promise<void> | undefined;
  #stopped = false;

  constructor(core: Cluster, workers: readonly Cluster[]) {
    this.#core = core;
    this.#workers = workers;
  }

  start(): void {
    this.#running ??= this.#run();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#running;
  }

  async #run(): Promise<void> {
    while (!this.#stopped) {
      const list = await this.#core.admin.get(DEPLOYMENTS).catch(() => ({ items: [] }));
      for (const deployment of items(list))
        await Promise.all(this.#workers.map((worker, index) => this.#share(deployment, worker, index)));
      await delay(ROUND_MS);
    }
  }

  /** Writes one worker's share. A cluster without the owner's kind gets nothing until the kind is back. */
  async #share(wanted: unknown, worker: Cluster, index: number): Promise<void> {
    try {
      const { replicas, template, strategy, selector } = Object(field(wanted, "spec"));
      const name = String(field(wanted, "metadata", "name"));
      const count = this.#workers.length;
      const share = Math.floor(replicas / count) + (index < replicas % count ? 1 : 0);
      const metadata = { name, namespace: NAMESPACE };
      const query = "?fieldManager=federation&force=true";
      const owner = { apiVersion: "fleet.example.com/v1", kind: "Workload", metadata };
      const uid = String(
        field(await worker.admin.call("PATCH", `${OWNERS}/${name}${query}`, owner, APPLY), "metadata", "uid"),
      );
      const ownerReferences = [{ apiVersion: owner.apiVersion, kind: owner.kind, name, uid, controller: true }];
      const deployment = {
        apiVersion: "apps/v1",
        kind: "Deployment",
        metadata: { ...metadata, ownerReferences },
        spec: { replicas: share, selector, strategy, template },
      };
      await worker.admin.call("PATCH", `${DEPLOYMENTS}/${name}${query}`, deployment, APPLY);
    } catch {
      // The next round tries again after any failure, as real federations do.
    }
  }
}
