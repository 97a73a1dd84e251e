/** Deletions of pods from the audit log of an apiserver: the user, the times, and the response. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { field } from "../../../scripts/control-plane/api-client.ts";
import type { Cluster, ClusterOptions } from "../../../scripts/control-plane/cluster.ts";

const POLICY = {
  apiVersion: "audit.k8s.io/v1",
  kind: "Policy",
  omitStages: ["RequestReceived"],
  rules: [{ level: "Metadata", verbs: ["delete"], resources: [{ group: "", resources: ["pods"] }] }, { level: "None" }],
};

/** Options of a cluster whose deletions {@link readDeletions} reads. */
export const AUDITED: ClusterOptions = {
  files: { "audit.yaml": JSON.stringify(POLICY) },
  flags: { "kube-apiserver": { "audit-policy-file": "$FILES/audit.yaml", "audit-log-path": "$FILES/audit.log" } },
};

export interface Deletion {
  readonly user: string;
  readonly pod: string;
  /** HTTP status. */
  readonly code: number;
  /** What a denied caller was told. */
  readonly message: string;
  /** Audit annotations of webhooks. Each key has the webhook's name as prefix. */
  readonly annotations: Readonly<Record<string, string>>;
  /** When the apiserver received the request and when it sent the response, Unix milliseconds. */
  readonly receivedMs: number;
  readonly respondedMs: number;
}

/** In the order of their responses. */
export function readDeletions(cluster: Cluster): Deletion[] {
  const lines = readFileSync(join(cluster.directory, "files", "audit.log"), "utf8").split("\n");
  const deletions = lines
    .filter((line) => line.endsWith("}"))
    .map((line): Deletion => {
      const event: unknown = JSON.parse(line);
      return {
        user: String(field(event, "user", "username")),
        pod: String(field(event, "objectRef", "name")),
        code: Number(field(event, "responseStatus", "code")),
        message: String(field(event, "responseStatus", "message") ?? ""),
        annotations: Object(field(event, "annotations")),
        receivedMs: Date.parse(String(field(event, "requestReceivedTimestamp"))),
        respondedMs: Date.parse(String(field(event, "stageTimestamp"))),
      };
    });
  return deletions.sort((a, b) => a.respondedMs - b.respondedMs);
}
