import { describe, expect, test } from "vitest";
import {
  cellUpdate,
  makeCell,
  makePod,
  makeProtector,
  makeRequest,
  makeSpec,
} from "../../../test/support/decide/fixtures.ts";
import { makeBucket } from "../../../test/support/decide/settling-fixtures.ts";
import { COUNTED_CONDITION } from "../../schema/annotations.ts";
import type { Pod } from "../../schema/pod.ts";
import type { PodProtectorSpec } from "../../schema/podprotector.ts";
import { decide } from "../quota.ts";
import { parseProtector } from "../state/protector-state.ts";

describe("pods that are counted before they are Ready", () => {
  const gate = { readinessGates: [COUNTED_CONDITION], waitsForGates: true };
  const waiting = (name: string): Pod =>
    makePod(name, { ...gate, readyForSeconds: undefined, conditions: { ContainersReady: true } });
  const pods = [makePod("x"), waiting("y"), waiting("z")];

  test("are published with the position, and taken back when they are Ready", () => {
    const first = cellUpdate({ pods, position: "1000" });
    expect(first.entry.aggregation).toMatchObject({ availableReplicas: 3, notReady: "2@1000" });
    expect(cellUpdate({ pods, position: "1001", stored: first.entry }).reasons).toEqual([]);
    const one = [makePod("x"), makePod("y"), waiting("z")];
    const second = cellUpdate({ pods: one, position: "1002", stored: first.entry });
    expect(second.reasons).toEqual(["Counts"]);
    expect(second.entry.aggregation?.notReady).toBe("1@1002");
    const all = cellUpdate({ pods: ["x", "y", "z"].map((name) => makePod(name)), stored: second.entry });
    expect(all.entry.aggregation).not.toHaveProperty("notReady");
  });

  test("are published where they are reserved, too: a webhook may take the reservation back before a count", () => {
    const stored = makeCell("a", 3, [makeBucket({ podUID: "uid-y", podResourceVersion: "2000" })]);
    expect(cellUpdate({ pods, position: "1000", stored }).entry.aggregation?.notReady).toBe("2@1000");
  });

  test.each(["Running", "Scheduled"] as const)("are none where %s is what counts", (healthCriterion) => {
    const spec = makeSpec({ healthCriterion });
    expect(cellUpdate({ pods, position: "1000", spec }).entry.aggregation).not.toHaveProperty("notReady");
  });

  test.each<[string, Partial<PodProtectorSpec>]>([
    ["Running is what counts", { healthCriterion: "Running" }],
    ["they are not mature", { minReadySeconds: 30 }],
  ])("are not ready where nothing tells them apart, so they spare no pod by Ready: %s", (_, options) => {
    const spec = makeSpec({ minAvailable: 1, allowedHealthCriteria: ["Ready"], ...options });
    const { entry } = cellUpdate({ pods, spec });
    expect(entry.aggregation).toMatchObject({ totalReplicas: 3, readyReplicas: 1 });
    const request = makeRequest(makePod("x"), { criterion: "Ready" });
    expect(decide(parseProtector(makeProtector([entry], spec)), request)).toMatchObject({ cause: "AtMinimum" });
  });

  test("are published where Ready is what counts", () => {
    const { entry } = cellUpdate({ pods, spec: makeSpec({ healthCriterion: "Ready" }) });
    expect(entry.aggregation).toMatchObject({ availableReplicas: 3, readyReplicas: 3, notReady: "2@1000" });
  });

  test("are not written again and again where the CRD drops the field", () => {
    const { entry } = cellUpdate({ pods, position: "1000" });
    const { notReady: _, ...kept } = entry.aggregation ?? { totalReplicas: 0, availableReplicas: 0 };
    expect(cellUpdate({ pods, position: "1000", stored: { ...entry, aggregation: kept } }).reasons).toEqual([]);
  });
});
