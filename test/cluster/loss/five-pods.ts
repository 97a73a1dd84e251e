import { BARE } from "../../../scripts/control-plane/cluster.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { createReadyPods } from "../../support/cluster/pods.ts";
import { createProtector, waitUntilSettled } from "../../support/cluster/protectors.ts";

export const CELL = "east";
export const NAMESPACE = "shop";
/** A protector that was made by hand. */
export const NAME = "by-hand";
export const PROMISED = 3;
export const PROTECTOR = `/apis/podseidon.kubewharf.io/v1alpha1/namespaces/${NAMESPACE}/podprotectors/${NAME}`;
export const PODS = `/api/v1/namespaces/${NAMESPACE}/pods`;
export const labels = { app: "web" };

/** A core and a cell with the ready pods `web-0` to `web-4`, three of which are promised. */
export async function startFivePods(): Promise<TestEnvironment> {
  const environment = await TestEnvironment.start({ cells: [CELL], replicas: 2, settle: "3s", cell: BARE });
  const { core } = environment;
  const cell = environment.cell(CELL);
  const namespace = { apiVersion: "v1", kind: "Namespace", metadata: { name: NAMESPACE } };
  for (const cluster of [core, cell]) await cluster.apply([namespace]);
  await createProtector(core, NAMESPACE, NAME, { minAvailable: PROMISED, selector: { matchLabels: labels } });
  await createReadyPods(cell, { namespace: NAMESPACE, prefix: "web", count: PROMISED + 2, labels });
  await waitUntilSettled(core, NAMESPACE, NAME, PROMISED + 2);
  return environment;
}
