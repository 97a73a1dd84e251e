/** A budget over cells whose protector was lost and created again, or whose cell was renamed. */
import { describe, expect, test } from "vitest";
import { specHash } from "../../../shared/decide/availability/spec-facts.ts";
import { INT32_MAX } from "../../../shared/decide/minimum/workload-minimum.ts";
import { type GivenBudget, minimum, resolve, selector } from "../../../test/support/generator/resolve-budget.ts";

const nowhere = { total: 0, controllers: [] };
const budget = { maxUnavailable: 1 };
const empty = [0, 0] as const;
const again: GivenBudget = { pods: nowhere, isCounted: true, isRestored: true };
const hold = "Replaced/1-t";

describe("a cell that has all pods, and stays silent for longer than the others are on hold,", () => {
  test("keeps the number of the lost protector", async () => {
    const told = await resolve(budget, { ...again, present: 9, cells: [empty, empty] });
    expect(minimum(told)).toBe(9);
    expect(told).toMatchObject({ why: expect.stringContaining("created again") });
  });

  test("keeps all of them where nobody remembers the number", async () => {
    const first = await resolve(budget, { pods: nowhere });
    const [{ derivation } = {}] = first.kind === "resolved" ? first.protectors : [];
    const waiting = { ...again, present: INT32_MAX - 1, derivation };
    const told = await resolve(budget, { ...waiting, cells: [empty] });
    expect(minimum(told)).toBe(INT32_MAX - 1);
    expect(told).toMatchObject({ why: expect.stringContaining("created again") });
    expect(await resolve(budget, { ...waiting, cells: [empty], isOnHold: true })).toMatchObject({ why: undefined });
    expect(await resolve(budget, { ...waiting, cells: [], uncounted: { hold } })).toMatchObject({ why: undefined });
    const named = await resolve(budget, { ...waiting, cells: [empty], uncounted: { hold } });
    expect(named).toMatchObject({
      why: expect.stringContaining("cell z has not counted since the protector was lost"),
    });
    expect(minimum(await resolve(budget, { ...waiting, cells: [empty, [10, 10]] }))).toBe(9);
  });

  test("keeps all of them where all were kept before", async () => {
    const all = { ...again, present: 5, derivation: "minAvailable 5, as many as there are" };
    expect(minimum(await resolve(budget, { ...all, cells: [] }))).toBe(5);
    expect(minimum(await resolve(budget, { ...all, cells: [empty], isOnHold: true }))).toBe(5);
    expect(minimum(await resolve(budget, { ...all, cells: [empty] }))).toBe(5);
    expect(minimum(await resolve(budget, { ...all, cells: [empty, [4, undefined]] }))).toBe(4);
  });

  test("keeps all of them beside cells that have counted", async () => {
    const all = { ...again, present: 5, derivation: "minAvailable 5, as many as there are" };
    expect(minimum(await resolve(budget, { ...all, cells: [[4, undefined]], uncounted: { hold } }))).toBe(5);
    const said = { ...all, uncounted: { hold, expectedReplicas: 5 } };
    expect(minimum(await resolve(budget, { ...said, cells: [[0, undefined]] }))).toBe(5);
  });

  test("keeps nothing of a protector that was never lost", async () => {
    expect(minimum(await resolve(budget, { ...again, isRestored: false, present: 9, cells: [empty] }))).toBe(0);
  });

  test("keeps nothing that was scaled to zero, whose last pods may go", async () => {
    expect(minimum(await resolve(budget, { ...again, present: 9, cells: [empty, [10, 0]] }))).toBe(0);
    expect(minimum(await resolve(budget, { ...again, present: 0, cells: [empty, empty] }))).toBe(0);
  });
});

describe("a cell with pods that has not counted the protector that was created again", () => {
  test.each<[string, number, GivenBudget, number]>([
    ["keeps its part as the lost one had it", 12, { cells: [[3, 3]], uncounted: { hold, expectedReplicas: 10 } }, 12],
    ["keeps the number where nobody knows its part", 12, { cells: [[3, 3]], uncounted: { hold } }, 12],
    ["keeps all pods of the others where there are more of them", 12, { cells: [[30, 30]], uncounted: { hold } }, 30],
    ["keeps its part alone", 9, { cells: [], uncounted: { hold, expectedReplicas: 10 } }, 9],
    ["keeps nothing once it is removed", 12, { cells: [[3, 3]], uncounted: { epoch: 1 } }, 2],
    ["keeps nothing once it is removed, held or not", 12, { cells: [[3, 3]], uncounted: { epoch: 1, hold } }, 2],
  ])("%s", async (_, present, given, expected) => {
    expect(minimum(await resolve(budget, { ...again, present, ...given }))).toBe(expected);
  });
});

test("all pods of the others are kept no longer than until the awaited cell has counted", async () => {
  const before = await resolve(budget, { ...again, present: 12, cells: [[30, 30]], uncounted: { hold } });
  const [{ derivation } = {}] = before.kind === "resolved" ? before.protectors : [];
  const kept = { ...again, present: 30, derivation };
  // Where all were kept before the loss, pods of the awaited cell are among them.
  expect(minimum(await resolve(budget, { ...kept, cells: [[20, 20]], uncounted: { hold } }))).toBe(30);
  expect(minimum(await resolve(budget, { ...kept, cells: [[20, 20]], uncounted: { epoch: 1 } }))).toBe(19);
  const counted = [
    [30, 30],
    [10, 10],
  ] as const;
  expect(minimum(await resolve(budget, { ...kept, cells: counted }))).toBe(39);
});

test("a cell that has not counted since the loss, nor the pods that the budget selects now, is named", async () => {
  const other = { matchLabels: { app: "other" } };
  const counted = {
    expectedReplicas: 10,
    specHash: specHash({ minAvailable: 0, minReadySeconds: 0, selector: other }),
  };
  const changed = { ...again, present: 12, presentSelector: other, uncounted: { hold, ...counted } };
  const first = await resolve(budget, { ...changed, cells: [[3, 3]] });
  const [{ derivation } = {}] = first.kind === "resolved" ? first.protectors : [];
  const waiting = { ...changed, derivation, present: INT32_MAX - 1, presentSelector: selector };
  const told = await resolve(budget, { ...waiting, cells: [[3, 3]] });
  expect(minimum(told)).toBe(INT32_MAX - 1);
  expect(told).toMatchObject({ why: expect.stringContaining("cell z has not counted the pods that it selects now") });
});

test("a cell that is renamed keeps the number until it counts again, where the others have no pods", async () => {
  const removed = { pods: nowhere, isCounted: true, present: 9, uncounted: { epoch: 1 } };
  expect(minimum(await resolve(budget, { ...removed, cells: [empty] }))).toBe(9);
  expect(minimum(await resolve(budget, { ...removed, cells: [empty, [10, 10]] }))).toBe(9);
  expect(minimum(await resolve(budget, { ...removed, cells: [empty, [5, 5]] }))).toBe(4);
});
