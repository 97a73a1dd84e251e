import { expect, test } from "vitest";
import { compileSelector } from "./selector.ts";
import { parseSelectorText } from "./selector-text.ts";

const WEB = { app: "web", "podseidon.kubewharf.io/protect": "true", tier: "a" };

test.each<[string, boolean]>([
  ["", true],
  [" ", true],
  ["podseidon.kubewharf.io/protect=true", true],
  ["podseidon.kubewharf.io/protect==true", true],
  ["podseidon.kubewharf.io/protect!=true", false],
  ["app=web,tier=b", false],
  ["app = web , tier = a", true],
  ["tier in (a,b)", true],
  ["tier in (x,y,a)", true],
  ["tier notin (a, b)", false],
  ["tier notin (c),app in (web)", true],
  ["tier in (a),app in (x,web),!legacy", true],
  ["app", true],
  ["!app", false],
  ["! legacy", true],
  ["legacy", false],
  ["app=", false],
])("%j selects a workload: %s", (text, expected) => {
  const selector = parseSelectorText(text);
  expect(compileSelector(selector ?? {}, "matches").matches(WEB)).toBe(selector !== undefined && expected);
  expect(selector).toBeDefined();
});

test.each([
  "app=web=2",
  "app in a,b",
  "app in a,b)",
  "app)(,tier",
  "tier in ((a,b),c)",
  "tier in (a,b c)",
  "app in (a,b),",
  "=web",
  "app in (a,b",
  ",",
  "a b",
  "-x=1",
  "app=web,",
])("%j is not a selector", (text) => {
  expect(parseSelectorText(text)).toBeUndefined();
});

// The status of a custom resource may have such a text. To look ahead from each comma costs the square of its length.
test.each([",".repeat(1_000_000), `app in (${"b,".repeat(500_000)}`])("a megabyte of commas is no selector", (text) => {
  expect(parseSelectorText(text)).toBeUndefined();
});
