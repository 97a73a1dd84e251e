import { readFileSync } from "node:fs";
import { join } from "node:path";
import { loadAll } from "js-yaml";
import { expect, test } from "vitest";
import { isAskedBy } from "./asked-namespaces.ts";
import { parseDeclaredConfiguration } from "./desired-configuration.ts";

const FILE = join(import.meta.dirname, "../../../manifests/base/webhook-configuration/webhook-configuration.yaml");
const shipped = parseDeclaredConfiguration(loadAll(readFileSync(FILE, "utf8"))[0]);
const SHOP = { "kubernetes.io/metadata.name": "shop" };

function changed(change: object): Pick<typeof shipped, "webhooks"> {
  return { webhooks: (shipped.webhooks ?? []).map((webhook) => ({ ...webhook, ...change })) };
}

/** One webhook with one rule. */
function ruled(operations: string[], resources: string[]): Pick<typeof shipped, "webhooks"> {
  const [first] = shipped.webhooks ?? [];
  return { webhooks: first === undefined ? [] : [{ ...first, rules: [{ operations, resources }] }] };
}

test.each<[string, Pick<typeof shipped, "webhooks">, Readonly<Record<string, string>>, boolean]>([
  ["as it is shipped", shipped, SHOP, true],
  ["about podseidon's own namespace", shipped, { "kubernetes.io/metadata.name": "podseidon-system" }, false],
  ["with failurePolicy Ignore", changed({ failurePolicy: "Ignore" }), SHOP, false],
  ["about labelled namespaces", changed({ namespaceSelector: { matchLabels: { a: "b" } } }), SHOP, false],
  ["about labelled namespaces, of one", changed({ namespaceSelector: { matchLabels: { a: "b" } } }), { a: "b" }, true],
  ["about all namespaces", changed({ namespaceSelector: null }), SHOP, true],
  ["about evictions alone", { webhooks: shipped.webhooks?.slice(1, 2) }, SHOP, false],
  ["about deletions and other things", ruled(["UPDATE", "DELETE"], ["pods/eviction", "pods"]), SHOP, true],
  ["about all operations of all resources", ruled(["*"], ["*"]), SHOP, true],
  ["about all of all subresources", ruled(["*"], ["*/*"]), SHOP, true],
  ["about changes alone", ruled(["CREATE", "UPDATE"], ["pods"]), SHOP, false],
  ["that can't be read", changed({ rules: "all" }), SHOP, false],
  ["without webhooks", { webhooks: null }, SHOP, false],
])("a configuration %s", (_, configuration, labels, expected) => {
  expect(isAskedBy(configuration, labels)).toBe(expected);
});
