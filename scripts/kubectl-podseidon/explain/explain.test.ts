import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { FAILURE_TAGS } from "../../../webhook/reserve/verdict.ts";
import { root } from "../../root.ts";
import { EXPLANATIONS, explanationsOf } from "./explanations.ts";

const names = new Set(EXPLANATIONS.map(({ name }) => name));
const textOf = (path: string): string => readFileSync(join(root, path), "utf8");

describe("every name that an operator meets is explained", () => {
  test("each failure", () => {
    expect(FAILURE_TAGS.filter((tag) => !names.has(tag))).toEqual([]);
  });

  test("each condition and each of its reasons", () => {
    const page = textOf("docs/api.md");
    const types = textOf("docs/design.md").match(/`status.conditions\[\]`[^\n]*/)?.[0] ?? page;
    const found = [...types.matchAll(/`([A-Z]\w+)`/g)].map(([, name = ""]) => name);
    expect(found.length).toBeGreaterThan(5);
    expect(found.filter((name) => !names.has(name))).toEqual([]);
  });

  test("each cause of a hold that the code writes", () => {
    const source = textOf("shared/decide/settling/lost-history.ts");
    const causes = [...source.matchAll(/^ {2}\| "(\w+)"$|reason: "(\w+)" \| "(\w+)"/gm)].flatMap((found) =>
      found.slice(1),
    );
    const known = causes.filter((name) => name !== undefined);
    expect(known.length).toBeGreaterThan(6);
    expect(known.filter((name) => !names.has(name))).toEqual([]);
  });
});

/** The words of a message in the file that writes it. */
test.each<[string, string, string]>([
  ["webhook/probe/probe-endpoints.ts", "is told by its probe", "Probe:refused"],
  ["webhook/probe/probe-endpoints.ts", "has a probe that can't be asked", "Probe:failed"],
  ["webhook/probe/probe-endpoints.ts", "could not ask its probe", "Probe:failed"],
  ["webhook/probe/probe-endpoints.ts", "has a probe that does not answer", "Probe:down"],
  ["webhook/probe/probe-endpoints.ts", "has too many questions waiting for its probe", "Probe:overloaded"],
  ["webhook/respond/node-response.ts", "its pods can't be listed", "PodsUnknown"],
  ["webhook/respond/denial-outlook.ts", "has been silent for ", "CellStale"],
  ["webhook/reserve/protector-cache.ts", "has not confirmed its protectors", "core-unavailable"],
  ["webhook/respond/denial-outlook.ts", "has not been counted for ", "CellStale"],
  ["webhook/respond/denial-outlook.ts", "has been on hold for ", "OnHold"],
  ["manifests/base/workload-policy/policy.yaml", "podseidon-workload-deletions", "WorkloadDeletion"],
])("what %s says, %j, is explained by %s", (path, words, name) => {
  expect(textOf(path)).toContain(words);
  expect(explanationsOf(`pod shop/web-1 may not be deleted now: it ${words} 3m5s`).map((one) => one.name)).toEqual([
    name,
  ]);
});

test.each<[string, string]>([
  ["atminimum", "AtMinimum"],
  [
    'Internal error occurred: failed calling webhook "pods.podseidon.kubewharf.io": failed to call webhook: ' +
      'an error on the server ("core cluster core is unreachable") has prevented the request from succeeding',
    "failed calling webhook",
  ],
  [
    "pod shop/web-1 may not be deleted now: PodProtector shop/web needs 8 available pods, 8 are available, 0 of them " +
      "reserved by disruptions under way: its capacity is at the minimum; try again when more pods are available",
    "AtMinimum",
  ],
  ["needs 3 available pods, and no aggregator has counted the pods of this cell yet", "NotCounted"],
  ["CellStale", "CellStale"],
])("%s is explained", (text, name) => {
  expect(explanationsOf(text).map((one) => one.name)).toEqual([name]);
});

test("what nobody knows is not explained", () => {
  expect(explanationsOf("something else")).toEqual([]);
});
