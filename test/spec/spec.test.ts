/**
 * The specification in `docs/spec`: it keeps the invariants in every state of small worlds, and breaks one of them
 * without each rule.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import { root } from "../../scripts/root.ts";
import { isRule, type Rule } from "../simulation/ablation/rules.ts";
import { explore } from "./explore.ts";
import { loadSpecification, type Specification, walksOfQuint } from "./specification.ts";

const INVARIANTS = ["S1", "S2", "S3", "S4", "S5", "S6", "S8"];
/** Of one world. The full size visits every state of most of them. */
const STATES = process.env.PODSEIDON_TEST_SIZE === "full" ? 700_000 : 15_000;

const SCENARIOS = [
  "deletions",
  "evictions",
  "births",
  "pins",
  "maturing",
  "two_cells",
  "two_protectors",
  "two_leaders",
  "removed_entry",
  "restored_core",
  "restored_cell",
  "restored_cell_two_leaders",
];

/** A world in which the rule matters, and the invariant that breaks without it. */
const RULES: readonly { readonly rule: Rule; readonly scenario: string; readonly breaks: string }[] = [
  { rule: "Reserved", scenario: "deletions", breaks: "S1" },
  { rule: "RepeatRefresh", scenario: "deletions", breaks: "S8" },
  { rule: "R2DeleteOnly", scenario: "evictions", breaks: "S5" },
  { rule: "R3Settle", scenario: "evictions", breaks: "S5" },
  { rule: "R1Position", scenario: "births", breaks: "S5" },
  { rule: "Reached", scenario: "births", breaks: "S5" },
  { rule: "PinEviction", scenario: "pins", breaks: "S8" },
  { rule: "PinWeight", scenario: "pins", breaks: "S6" },
  { rule: "LiveRead", scenario: "pins", breaks: "S6" },
  { rule: "RepeatNeedsWeight", scenario: "pins", breaks: "S1" },
  { rule: "Paid", scenario: "maturing", breaks: "S1" },
  { rule: "PinImmature", scenario: "maturing", breaks: "S8" },
  { rule: "MaturityPosition", scenario: "maturing", breaks: "S6" },
  { rule: "WeightFollowsAvailable", scenario: "maturing", breaks: "S6" },
  { rule: "AllAgree", scenario: "two_protectors", breaks: "S8" },
  { rule: "Fence", scenario: "two_leaders", breaks: "S4" },
  { rule: "Hold", scenario: "removed_entry", breaks: "S1" },
  { rule: "LostHistory", scenario: "removed_entry", breaks: "S5" },
  { rule: "Reassert", scenario: "restored_core", breaks: "S5" },
  { rule: "Heard", scenario: "restored_cell", breaks: "S5" },
  { rule: "Epoch", scenario: "restored_cell_two_leaders", breaks: "S3" },
];

let specification: Specification;

beforeAll(() => {
  specification = loadSpecification();
});

test("the specification stays short enough to be read at once", () => {
  const lines = readFileSync(join(root, "docs/spec/protocol.qnt"), "utf8").split("\n");
  expect(lines.length).toBeLessThanOrEqual(601);
  expect(lines.filter((line) => line.length > 120)).toEqual([]);
});

test("every scenario is checked", () => {
  expect([...specification.scenarios].sort()).toEqual([...SCENARIOS].sort());
});

describe("with every rule, no reachable state breaks an invariant", () => {
  test.each(SCENARIOS)("%s", (scenario) => {
    const { states, depth, isComplete, violation } = explore(specification.open(scenario).actions, INVARIANTS, {
      states: STATES,
    });
    console.log(`${scenario}: ${states} states to depth ${depth}${isComplete ? ", which are all" : ""}`);
    expect(violation?.trace, violation?.invariant).toBeUndefined();
    expect(isComplete || states >= STATES).toBe(true);
  });
});

describe("without a rule, an invariant breaks", () => {
  test.each(RULES)("$rule: $breaks", ({ rule, scenario, breaks }) => {
    const { violation } = explore(specification.open(scenario, rule).actions, INVARIANTS, { states: 200_000 });
    expect(violation?.invariant).toBe(breaks);
  });

  test("every rule that the specification can leave out is in the table", () => {
    const source = readFileSync(join(root, "docs/spec/protocol.qnt"), "utf8");
    const named = [...source.matchAll(/\bhas\("(\w+)"\)/g)].map(([, name = ""]) => name);
    expect([...new Set(named)].sort()).toEqual(RULES.map(({ rule }) => rule).sort());
    expect(named.filter((name) => !isRule(name))).toEqual([]);
  });
});

test.each(["maturing"])("quint's own walks through %s are steps here", (scenario) => {
  const { actions, values } = specification.open(scenario);
  const walks = walksOfQuint(scenario, values, 5, 15);
  expect(walks.length).toBe(5);
  for (const walk of walks) {
    expect(actions.after("init").map(({ state }) => state)).toContain(walk[0]);
    for (const [at, state] of walk.slice(1).entries()) {
      expect(actions.after("step", walk[at]).some((step) => step.state === state)).toBe(true);
    }
  }
});

test("the functions that the comments name are there", () => {
  const cited = specification.comments.flatMap((comment) => [...comment.matchAll(/^code: (\S+) (\S+)$/gm)]);
  expect(cited.length).toBeGreaterThan(20);
  const missing = cited.filter(([, file = "", name = ""]) => {
    const source = readFileSync(join(root, file), "utf8");
    return !name.split(".").every((part) => isDefined(source, part));
  });
  expect(missing.map(([line]) => line)).toEqual([]);
});

/** A class, a function or a method of this name. */
function isDefined(source: string, name: string): boolean {
  return new RegExp(`^\\s*(export )?(async )?(class|function) ${name}\\b|^  (async )?${name}(<.*>)?\\(`, "m").test(
    source,
  );
}
