/** The checks can fail: each rule, left out, breaks the invariant that the table names, in the seed that it names or soon after. */
import { describe, expect, it } from "vitest";
import { ABLATIONS } from "./ablations.ts";
import { runWithout } from "./runner/ablate.ts";

/** A change of the product changes what happens in a seed; the next ones show the rule's worth as well. */
const SEEDS_TRIED = 10;
/** Generous: how long a seed takes is no criterion. */
const SEED_TIMEOUT_MS = 120_000;

describe("without the rule", () => {
  it.for(ABLATIONS)(
    "$rule, $invariant breaks",
    { timeout: SEED_TIMEOUT_MS * SEEDS_TRIED },
    async ({ rule, seed, invariant }) => {
      const met: string[] = [];
      for (let next = seed; next < seed + SEEDS_TRIED && !met.includes(invariant); next += 1)
        met.push(...(await runWithout([rule], next)).violations.map((violation) => violation.invariant));
      expect(met).toContain(invariant);
    },
  );
});
