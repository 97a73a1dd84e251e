import { expect, test } from "vitest";
import { isUnprotected, runsDry } from "./unprotected.ts";

const NOT_FOUND = 'pods "x" not found';
const denied = (webhook: string): string => `admission webhook "${webhook}" denied the request: ${NOT_FOUND}`;

test.each<[string, string, unknown, boolean]>([
  ["no webhook configuration", NOT_FOUND, "none", true],
  ["none, and a webhook that only binds evictions", denied("bind.podseidon.kubewharf.io"), "none", true],
  ["none, and a webhook of a file", denied("bind.podseidon.static.k8s.io"), "none", false],
  ["none, and another webhook, which hides the answer", denied("validate.kyverno.svc-fail"), "none", false],
  ["one that may not be read", denied("bind.podseidon.kubewharf.io"), undefined, false],
  ["one", denied("bind.podseidon.kubewharf.io"), { webhooks: [] }, false],
  ["one that leaves the namespace out", NOT_FOUND, { webhooks: [] }, true],
])("a promise that nobody asks about: %s", async (_, message, configuration, expected) => {
  const cluster = { raw: async () => ({ status: 404, headers: {}, body: JSON.stringify({ message }) }) };
  expect(await isUnprotected(cluster, configuration, "shop")).toBe(expected);
});

test.each<[string, readonly string[] | undefined, readonly string[] | undefined, boolean]>([
  ["that denies", ["--require-bound-evictions"], undefined, false],
  ["that only warns", ["--dry-run"], undefined, true],
  ["in the core, that only warns", undefined, ["--dry-run=true"], true],
  ["of its own, beside one in the core that only warns", [], ["--dry-run"], false],
  ["somewhere else", undefined, undefined, false],
])("a cluster with a webhook %s", async (_, args, coreArgs, expected) => {
  const has = (found: readonly string[] | undefined) => ({
    find: async () =>
      found && { metadata: { name: "webhook" }, spec: { template: { spec: { containers: [{ args: found }] } } } },
  });
  expect(await runsDry(has(args), has(coreArgs), "podseidon-system")).toBe(expected);
});
