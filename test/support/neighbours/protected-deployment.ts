/** A Deployment in every cell of an environment, under one protector of all of its pods. */

import { field, items } from "../../../scripts/control-plane/api-client.ts";
import type { Cluster } from "../../../scripts/control-plane/cluster.ts";
import type { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { deployment } from "../cluster/deployments.ts";
import { createProtector, waitUntilSettled } from "../cluster/protectors.ts";

const PROTECTORS = "/apis/podseidon.kubewharf.io/v1alpha1/namespaces/default/podprotectors";

interface ProtectedDeployment {
  /** In each cell. */
  readonly replicas: number;
  /** Over all cells. */
  readonly minAvailable: number;
  /** Of each pod. */
  readonly requests?: Readonly<Record<string, string>>;
}

/** Resolves when all pods are counted. They end within a second of their deletion. */
export async function deployProtected(
  environment: TestEnvironment,
  name: string,
  { replicas, minAvailable, requests = {} }: ProtectedDeployment,
): Promise<void> {
  const containers = [{ name: "app", image: "app:1", resources: { requests } }];
  const workload = deployment(name, replicas, {
    labels: {},
    podSpec: { terminationGracePeriodSeconds: 1, containers },
  });
  const cells = [...environment.cells.values()];
  await Promise.all(cells.map((cell) => cell.apply([workload])));
  await createProtector(environment.core, "default", name, { minAvailable, selector: workload.spec.selector });
  await waitUntilSettled(environment.core, "default", name, replicas * cells.length);
}

/**
 * Changes the promise of a Deployment whose pods are all available. Resolves when the webhook decides by it, which a
 * dry run shows; a test that relies on it has one replica of the webhook.
 */
export async function changePromise(environment: TestEnvironment, name: string, minAvailable: number): Promise<void> {
  await environment.core.admin.call("PATCH", `${PROTECTORS}/${name}`, { spec: { minAvailable } });
  const cells = [...environment.cells.values()];
  const spares = (await podsOf(cells, name)).length > minAvailable;
  for (const cell of cells.slice(0, 1)) {
    await cell.waitFor(`the webhook to ${spares ? "spare" : "need"} each pod of ${name}`, async () => {
      const [pod] = await podsOf([cell], name);
      const path = `/api/v1/namespaces/default/pods/${String(field(pod, "metadata", "name"))}?dryRun=All`;
      return (await cell.admin.request("DELETE", path)).status < 300 === spares;
    });
  }
}

export async function podsOf(clusters: readonly Cluster[], name: string): Promise<readonly unknown[]> {
  const path = `/api/v1/namespaces/default/pods?labelSelector=app%3D${name}`;
  return (await Promise.all(clusters.map(async (cluster) => items(await cluster.admin.get(path))))).flat();
}
