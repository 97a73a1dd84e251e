/** What the small recorded installations have in common: two cells, and times that let a history end soon. */
import { BARE, type ClusterOptions } from "../../scripts/control-plane/cluster.ts";

export const CELLS = ["east", "west"] as const;
export const SETTLE = "6s";
export const PODS = "/api/v1/namespaces/default/pods";

export const CELL: ClusterOptions = { ...BARE, flags: { "kube-apiserver": { "request-timeout": "5s" } } };
