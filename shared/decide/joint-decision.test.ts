import { describe, expect, test } from "vitest";
import { makeCell, makePod, makeRequest, makeSpec, NOW_MS } from "../../test/support/decide/fixtures.ts";
import { heldBucket, stateOf, verdictLine } from "../../test/support/decide/quota-fixtures.ts";
import { formatMs } from "../schema/time.ts";
import { decideTogether } from "./joint-decision.ts";

const pods = (count: number, ready = true): ReturnType<typeof makeRequest>[] =>
  Array.from({ length: count }, (_, index) =>
    makeRequest(makePod(`web-${index}`, ready ? {} : { readyForSeconds: undefined })),
  );

const min = (minAvailable: number): { minAvailable: number } => ({ minAvailable });

describe("pods that go together", () => {
  test("all pass while as many are left as are needed", () => {
    const state = stateOf([makeCell("a", 10)], min(7));
    expect(decideTogether(state, pods(3)).map(verdictLine)).toEqual(Array(3).fill("allow Reserved w=1 paid"));
    expect(state.cells.get("a")?.ledger.size).toBe(0);
  });

  test("one too many denies all, for good: no reservation of others is in the way", () => {
    const decisions = decideTogether(stateOf([makeCell("a", 10)], min(7)), pods(4));
    expect(decisions.map(verdictLine)).toEqual(Array(4).fill("Denial TooManyTogether"));
    expect(decisions[0]?.facts).toMatchObject({ available: 10, reserved: 0, minAvailable: 7, together: 4 });
  });

  test("what denies one alone denies all", () => {
    expect(decideTogether(stateOf([makeCell("a", 7)], min(7)), pods(2)).map(verdictLine)).toEqual(
      Array(2).fill("Denial AtMinimum"),
    );
    const held = makeCell("a", 10, [], { hold: "Restored/x" });
    expect(decideTogether(stateOf([held], min(2)), pods(2)).map(verdictLine)).toEqual(Array(2).fill("Busy OnHold"));
    const both = stateOf([makeCell("a", 10), { ...held, cellID: "b" }], min(2));
    const inBoth = [...pods(1), makeRequest(makePod("web-1"), { cell: "b" })];
    expect(decideTogether(both, inBoth).map(verdictLine)).toEqual(Array(2).fill("Busy OnHold"));
  });

  test("what passes by itself is busy: reservations of others are in the way", () => {
    const state = stateOf([makeCell("a", 10, [heldBucket("uid-1"), heldBucket("uid-2")])], min(7));
    expect(decideTogether(state, pods(3)).map(verdictLine)).toEqual(Array(3).fill("Busy TooManyTogether"));
    const unavailable = pods(9, false).slice(3);
    expect(decideTogether(state, [...pods(3), ...unavailable])[0]?.facts).toMatchObject({ together: 3 });
    expect(decideTogether(state, pods(4)).map(verdictLine)).toEqual(Array(4).fill("Denial TooManyTogether"));
  });

  test("pods that are not available use nothing", () => {
    const state = stateOf([makeCell("a", 8)], min(7));
    expect(decideTogether(state, [...pods(1), ...pods(5, false).slice(1)]).map(verdictLine)).toEqual([
      "allow Reserved w=1 paid",
      ...Array(4).fill("allow Unavailable"),
    ]);
  });

  test("pods that are not mature yet are pinned, and use nothing", () => {
    const minReady = { ...min(7), minReadySeconds: 60 };
    const cutoff = { maturityCutoff: formatMs(NOW_MS - 60_000) };
    const held = [heldBucket("uid-1"), heldBucket("uid-2")];
    const state = stateOf([makeCell("a", 10, held, cutoff, makeSpec(minReady))], minReady);
    const immature = ["new-0", "new-1"].map((name) => makeRequest(makePod(name, { readyForSeconds: 10 })));
    expect(decideTogether(state, [...pods(1), ...immature]).map(verdictLine)).toEqual([
      "allow Reserved w=1 paid",
      ...Array(2).fill("allow PinnedImmature w=0"),
    ]);
    const decisions = decideTogether(state, [...pods(3), ...immature]);
    expect(decisions.map(verdictLine)).toEqual(Array(5).fill("Busy TooManyTogether"));
    expect(decisions[0]?.facts).toMatchObject({ together: 3 });
  });

  test("a repeat passes, whatever is left", () => {
    const state = stateOf([makeCell("a", 9, [heldBucket("uid-web-0"), heldBucket("uid-web-1")])], min(8));
    expect(decideTogether(state, pods(2)).map(verdictLine)).toEqual(Array(2).fill("allow Repeated w=1 paid"));
  });

  test("more than maxConcurrentLag never pass together", () => {
    const spec = { ...min(1), admissionHistoryConfig: { maxConcurrentLag: 2 } };
    expect(decideTogether(stateOf([makeCell("a", 10)], spec), pods(3)).map(verdictLine)).toEqual(
      Array(3).fill("Denial TooManyTogether"),
    );
  });
});
