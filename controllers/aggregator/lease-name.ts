import { hash } from "node:crypto";
import { AGGREGATOR_LEASE } from "../../shared/schema/annotations.ts";

interface CellOfCluster {
  readonly cellId: string;
  readonly namespace: string;
  readonly podSelector: string;
}

/**
 * The Lease that the replicas of one cell contend for: upstream's name where the cell is a whole cluster, one for each
 * cell where a cluster has several. Always a valid object name.
 */
export function leaseName({ cellId, namespace, podSelector }: CellOfCluster): string {
  if (namespace === "" && podSelector === "") return AGGREGATOR_LEASE;
  const plain = cellId
    .toLowerCase()
    .replace(/[^a-z0-9-]+/g, "-")
    .replace(/^-+|-+$/g, "")
    .slice(0, 40);
  const suffix = plain === cellId ? plain : `${plain}-${hash("sha256", cellId, "hex").slice(0, 8)}`;
  return `${AGGREGATOR_LEASE}-${suffix.replace(/^-/, "")}`;
}
