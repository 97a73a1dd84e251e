/** The accounts of cells in a core, and clients that use them. */
import { ApiserverClient } from "../control-plane/api-client.ts";
import type { Cluster } from "../control-plane/cluster.ts";
import { accountObjects, type CellComponent, COMPONENTS } from "../kubectl-podseidon/join/cell-objects.ts";

const SYSTEM = "podseidon-system";

type CellAccount = `${CellComponent}.${string}`;

/** Creates the two accounts of a cell like `join`, for the roles of `manifests/base`, which must be in the core. */
export async function createCellAccounts(core: Cluster, cell: string): Promise<void> {
  const objects = COMPONENTS.flatMap((component) => accountObjects(component, cell, SYSTEM));
  await core.apply(objects.map(({ body }) => body));
}

/**
 * A client of the core as a ServiceAccount of podseidon: `aggregator` is the one that cells share, `aggregator.a` is
 * that of cell a.
 */
export async function asAccount(core: Cluster, account: CellAccount | CellComponent) {
  const token = await core.serviceAccountToken(SYSTEM, `podseidon-${account}`);
  return new ApiserverClient({ url: core.url, certificateAuthorityPem: core.identity.certificateAuthorityPem, token });
}
