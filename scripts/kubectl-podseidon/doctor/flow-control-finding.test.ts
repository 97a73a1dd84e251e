import { readFileSync } from "node:fs";
import { join } from "node:path";
import { loadAll } from "js-yaml";
import { expect, test } from "vitest";
import { field } from "../../control-plane/api-client.ts";
import { root } from "../../root.ts";
import { flowControlFinding } from "./flow-control-finding.ts";

const [level, schema] = loadAll(readFileSync(join(root, "manifests/base/namespace/flow-control.yaml"), "utf8"));
const API = "/apis/flowcontrol.apiserver.k8s.io/v1";
const LEVEL = `${API}/prioritylevelconfigurations/${field(level, "metadata", "name")}`;
const SCHEMA = `${API}/flowschemas/${field(schema, "metadata", "name")}`;

test.each<[string, Readonly<Record<string, unknown>>, string, string, string]>([
  ["of the manifests", { [LEVEL]: level, [SCHEMA]: schema }, "podseidon-system", "ok", "have the level podseidon"],
  ["that nobody has applied", {}, "podseidon-system", "warning", "there is no FlowSchema podseidon"],
  ["without its level", { [SCHEMA]: schema }, "podseidon-system", "warning", "no PriorityLevelConfiguration podseidon"],
  ["of another namespace", { [LEVEL]: level, [SCHEMA]: schema }, "other", "warning", "not about the accounts of other"],
])("a FlowSchema %s", async (_, objects, system, expected, text) => {
  const finding = await flowControlFinding({ find: async (path) => objects[path] }, system);
  expect(finding).toMatchObject({ level: expected, found: expect.stringContaining(text) });
  if (expected === "warning") expect(finding.advice).toContain(`with system:serviceaccounts:${system} as its group`);
});
