/** The accounts of cells in a core, and clients that use them. */
import { ApiserverClient } from "../control-plane/api-client.ts";
import type { Cluster } from "../control-plane/cluster.ts";

const SYSTEM = "podseidon-system";
const RBAC = "rbac.authorization.k8s.io";

type CellAccount = `${"webhook" | "aggregator"}.${string}`;

/** Creates the two accounts of a cell with the permissions of `manifests/base`, which must be applied in the core. */
export async function createCellAccounts(core: Cluster, cell: string): Promise<void> {
  const objects = ["webhook", "aggregator"].flatMap((component) => {
    const name = `podseidon-${component}.${cell}`;
    const subjects = [{ kind: "ServiceAccount", name, namespace: SYSTEM }];
    const bound = (kind: "ClusterRole" | "Role", role: string): object => ({
      apiVersion: `${RBAC}/v1`,
      kind: `${kind}Binding`,
      metadata: { name: `${role}.${cell}`, ...(kind === "Role" ? { namespace: SYSTEM } : {}) },
      roleRef: { apiGroup: RBAC, kind, name: role },
      subjects,
    });
    return [
      { apiVersion: "v1", kind: "ServiceAccount", metadata: { name, namespace: SYSTEM } },
      bound("ClusterRole", `podseidon-${component}-core`),
      bound("Role", `podseidon-${component}-register`),
    ];
  });
  await core.apply(objects);
}

/**
 * A client of the core as a ServiceAccount of podseidon: `aggregator` is the one that cells share, `aggregator.a` is
 * that of cell a.
 */
export async function asAccount(core: Cluster, account: CellAccount | "webhook" | "aggregator") {
  const token = await core.serviceAccountToken(SYSTEM, `podseidon-${account}`);
  return new ApiserverClient({ url: core.url, certificateAuthorityPem: core.identity.certificateAuthorityPem, token });
}
