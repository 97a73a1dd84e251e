/** Creates and reads PodProtectors. */
import type { Cluster } from "../../../scripts/control-plane/cluster.ts";
import { Ledger } from "../../../shared/decide/ledger/ledger.ts";
import { type PodProtector, parsePodProtector } from "../../../shared/schema/podprotector.ts";

const API_VERSION = "podseidon.kubewharf.io/v1alpha1";

function path(namespace: string, name?: string): string {
  return `/apis/${API_VERSION}/namespaces/${namespace}/podprotectors${name === undefined ? "" : `/${name}`}`;
}

export async function createProtector(
  core: Cluster,
  namespace: string,
  name: string,
  spec: Readonly<Record<string, unknown>>,
): Promise<void> {
  const body = {
    apiVersion: API_VERSION,
    kind: "PodProtector",
    metadata: { name },
    spec: { minReadySeconds: 0, ...spec },
  };
  await core.admin.call("POST", path(namespace), body);
}

export async function readProtector(core: Cluster, namespace: string, name: string): Promise<PodProtector> {
  return parsePodProtector(await core.admin.get(path(namespace, name)));
}

/** Sum of the published available replicas of all cells. */
export function availableReplicas(protector: PodProtector): number {
  return (protector.status?.cells ?? []).reduce((sum, cell) => sum + (cell.aggregation?.availableReplicas ?? 0), 0);
}

/** Number of recorded reservations of all cells, packed or not. */
export function reservationCount(protector: PodProtector): number {
  return (protector.status?.cells ?? []).reduce(
    (sum, cell) => sum + Ledger.parse(cell.admissionHistory?.buckets ?? []).size,
    0,
  );
}

/** Waits until the cells count `wanted` available pods together and have no reservation. */
export async function waitUntilSettled(
  core: Cluster,
  namespace: string,
  name: string,
  wanted: number | (() => Promise<number>),
  timeoutMs?: number,
): Promise<void> {
  let last = "";
  let expected = 0;
  await core
    .waitFor(
      `${name} to count ${typeof wanted === "number" ? wanted : "all"} available pods and to have no reservation`,
      async () => {
        const protector = await readProtector(core, namespace, name);
        last = JSON.stringify(protector.status).slice(0, 3000);
        if (reservationCount(protector) !== 0) return false;
        expected = typeof wanted === "number" ? wanted : await wanted();
        return availableReplicas(protector) === expected;
      },
      timeoutMs,
    )
    .catch((cause: unknown) => {
      throw new Error(`${String(cause)}; expected ${expected}, its status was ${last}`, { cause });
    });
}
