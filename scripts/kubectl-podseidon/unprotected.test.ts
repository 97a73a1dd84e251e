import { expect, test } from "vitest";
import { isUnprotected } from "./unprotected.ts";

const NOT_FOUND = 'pods "x" not found';
const denied = (webhook: string): string => `admission webhook "${webhook}" denied the request: ${NOT_FOUND}`;

test.each<[string, string, unknown, boolean]>([
  ["no webhook configuration", NOT_FOUND, "none", true],
  ["none, and a webhook that only binds evictions", denied("bind.podseidon.kubewharf.io"), "none", true],
  ["none, and a webhook of a file", denied("bind.podseidon.static.k8s.io"), "none", false],
  ["none, and another webhook, which hides the answer", denied("validate.kyverno.svc-fail"), "none", false],
  ["one that may not be read", NOT_FOUND, undefined, false],
  ["one", NOT_FOUND, { webhooks: [] }, false],
])("a promise that nobody asks about: %s", async (_, message, configuration, expected) => {
  const cluster = { raw: async () => ({ status: 404, headers: {}, body: JSON.stringify({ message }) }) };
  expect(await isUnprotected(cluster, configuration, "shop")).toBe(expected);
});
