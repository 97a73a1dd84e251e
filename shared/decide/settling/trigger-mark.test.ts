import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  formatTriggerMark,
  isForked,
  type LineageSegment,
  MAX_LINEAGE,
  nextTriggerMark,
  parseTriggerMark,
  type TriggerMark,
} from "./trigger-mark.ts";

const mark = (counter: number, ...segments: readonly (readonly [number, string])[]): TriggerMark => ({
  counter,
  lineage: segments.map(([from, token]): LineageSegment => ({ from, token })),
});

function patched(from: TriggerMark, token: string, times: number): TriggerMark {
  let next = from;
  for (let time = 0; time < times; time++) next = nextTriggerMark(next, token);
  return next;
}

describe("the counter's lineage", () => {
  const cases: [string, TriggerMark, TriggerMark, boolean][] = [
    ["as it was", mark(9, [1, "a"]), mark(9, [1, "a"]), false],
    ["counted on", mark(9, [1, "a"]), mark(12, [1, "a"]), false],
    ["counted on by the next process", mark(9, [1, "a"]), mark(12, [1, "a"], [10, "b"]), false],
    ["by the next but one", mark(9, [1, "a"]), mark(12, [1, "a"], [11, "b"], [12, "c"]), false],
    ["went back", mark(9, [1, "a"]), mark(8, [1, "a"]), true],
    ["went back, without a lineage", mark(9), mark(8), true],
    ["counted on, without a lineage", mark(9), mark(10), false],
    ["a lineage that begins", mark(9), mark(10, [10, "a"]), false],
    ["went back and passed, by the process that noticed", mark(9, [1, "a"]), mark(12, [1, "a"], [8, "a2"]), true],
    ["went back to just before what was seen", mark(9, [1, "a"]), mark(12, [1, "a"], [9, "b"]), true],
    ["went back to before the process that was seen", mark(9, [1, "a"], [7, "b"]), mark(12, [1, "a"], [6, "c"]), true],
    [
      "went back to just before the process that was seen",
      mark(9, [1, "a"], [7, "b"]),
      mark(12, [1, "a"], [7, "c"]),
      true,
    ],
    ["created again by a process without memory", mark(9, [1, "a"]), mark(2000, [1999, "b"]), false],
    ["created again by a process whose clock is behind", mark(9, [1, "a"]), mark(20, [5, "b"]), true],
  ];
  test.each(cases)("%s", (_, known, found, forked) => {
    expect(isForked(known, found)).toBe(forked);
  });

  test("a reader that has missed more segments than are kept assumes a restore", () => {
    let found = mark(9, [1, "a"]);
    for (let process = 0; process < MAX_LINEAGE; process++) found = nextTriggerMark(found, `b${process}`);
    expect(found.lineage).toHaveLength(MAX_LINEAGE);
    expect(isForked(mark(9, [1, "a"]), found)).toBe(true);
    expect(isForked(mark(10, [10, "b0"]), found)).toBe(false);
  });

  test("a restore that loses a patch shows to a reader of that patch, however far the counter has come since", () => {
    const turns = fc.array(fc.tuple(fc.constantFrom("a", "b", "c"), fc.integer({ min: 1, max: 5 })), { maxLength: 5 });
    fc.assert(
      fc.property(turns, turns, fc.integer({ min: 1, max: 40 }), (before, lost, after) => {
        let tokens = 0;
        const play = (start: TriggerMark, work: readonly [string, number][]): TriggerMark =>
          work.reduce((state, [token, times]) => patched(state, `${token}${tokens++}`, times), start);
        const snapshot = patched(play(mark(0), before), "last", 1);
        // The process of the snapshot's last patch may go on in the lost history, but it notices and takes another
        // token.
        const known = play(patched(snapshot, "last", 1), lost);
        expect(isForked(snapshot, known)).toBe(false);
        expect(isForked(known, patched(snapshot, "noticed", after))).toBe(true);
      }),
    );
  });

  test("is written and read", () => {
    const written = mark(12, [1, "a-_Z9"], [10, "b"]);
    expect(parseTriggerMark(formatTriggerMark(written))).toEqual(written);
    const counter = "podseidon.kubewharf.io/update-trigger-counter";
    const lineage = "podseidon.kubewharf.io/update-trigger-lineage";
    expect(parseTriggerMark(undefined)).toBeUndefined();
    expect(parseTriggerMark({ [counter]: "many" })).toBeUndefined();
    expect(parseTriggerMark({ [counter]: "7", [lineage]: "x,3:b,:c,4:" })).toEqual(mark(7, [3, "b"]));
  });
});
