/** Deletions of pods as the audit log of an apiserver has them: who asked, when, and what was answered. */
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

/** For {@link readDeletions} of that cluster. */
export const AUDITED: ClusterOptions = {
  files: { "audit.yaml": JSON.stringify(POLICY) },
  flags: { "kube-apiserver": { "audit-policy-file": "$FILES/audit.yaml", "audit-log-path": "$FILES/audit.log" } },
};

export interface Deletion {
  readonly user: string;
  readonly pod: string;
  /** HTTP status. */
  readonly code: number;
  /** What webhooks had to say for the record, each key prefixed by the webhook's name. */
  readonly annotations: Readonly<Record<string, string>>;
  /** When the apiserver received it and when it had answered, Unix milliseconds. */
  readonly receivedMs: number;
  readonly answeredMs: number;
}

/** In the order of their answers. */
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
        annotations: Object(field(event, "annotations")),
        receivedMs: Date.parse(String(field(event, "requestReceivedTimestamp"))),
        answeredMs: Date.parse(String(field(event, "stageTimestamp"))),
      };
    });
  return deletions.sort((a, b) => a.answeredMs - b.answeredMs);
}
