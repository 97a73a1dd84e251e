/** What `doctor` says of webhook configurations that ask about less than all disruptions. */
import { readFileSync } from "node:fs";
import { loadAll } from "js-yaml";
import { describe, expect, test } from "vitest";
import { items } from "../../control-plane/api-client.ts";
import { webhookConfigurationFindings } from "./webhook-configuration-findings.ts";

const FILE = new URL("../../../manifests/base/webhook-configuration/webhook-configuration.yaml", import.meta.url);
const [validating, mutating] = loadAll(readFileSync(FILE, "utf8"));

function found(asked: unknown, bound: unknown): readonly string[] {
  const about = webhookConfigurationFindings(asked, bound, 0).filter(({ check }) => check === "webhook configuration");
  return about.map(({ level, found: text }) => `${level}: ${text}`);
}

/** The shipped webhooks, of which the one at `index` has one more condition. */
function withCondition(index: number): unknown {
  const conditions = (one: unknown): unknown[] => [
    ...items(one, "matchConditions"),
    { name: "exempt", expression: "false" },
  ];
  const change = (one: unknown, at: number): unknown =>
    at === index ? { ...Object(one), matchConditions: conditions(one) } : one;
  return { ...Object(validating), webhooks: items(validating, "webhooks").map(change) };
}

describe("a webhook configuration", () => {
  test("as it is shipped is in order", () => {
    expect(found(validating, mutating)).toEqual([expect.stringMatching(/^ok: asks as cell /)]);
  });

  test.each([
    ["DELETE pods", 0],
    ["CREATE pods/eviction", 1],
  ])("that asks about %s under one more condition is told", (what, index) => {
    const expected = [`warning: the cluster asks about ${what} only where condition exempt is true`];
    expect(found(withCondition(index), mutating)).toEqual(expected);
    // Another webhook without the condition asks about the others.
    const [whole, exempting] = [validating, withCondition(index)].map((one) => items(one, "webhooks"));
    const both = { ...Object(validating), webhooks: [...(whole ?? []), ...(exempting ?? [])] };
    expect(found(both, mutating)).toEqual([expect.stringMatching(/^ok: /)]);
  });
});
