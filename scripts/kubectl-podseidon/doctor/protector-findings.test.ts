/** What `doctor` makes of the protectors. */
import { describe, expect, test } from "vitest";
import { formatMs } from "../../../shared/schema/time.ts";
import { makeCell, makeProtector, NOW_MS } from "../../../test/support/decide/fixtures.ts";
import { viewProtector } from "../view.ts";
import { type Finding, protectorFindings } from "./findings.ts";

/** `level check: found` */
function line({ level, check, found }: Finding): string {
  return `${level} ${check}: ${found}`;
}

test("protectors in trouble are named", () => {
  const low = viewProtector(makeProtector([makeCell("a", 1)]), NOW_MS);
  const impossible = viewProtector(makeProtector([makeCell("a", 2)]), NOW_MS);
  expect(protectorFindings([low, impossible]).map(line)).toEqual([
    "problem protectors: 1 below their minimum: default/web",
    "warning protectors: 1 can never be disrupted: default/web",
    "ok reservations: none",
  ]);
});

describe("protectors that wait to be deleted", () => {
  const finalizers = ["podseidon.kubewharf.io/generator"];
  const adviceOn = (metadata: object, type = "Other"): readonly (string | undefined)[] => {
    const made = makeProtector([makeCell("a", 4)]);
    const condition = {
      type,
      status: "True",
      reason: "x",
      message: "x",
      lastTransitionTime: formatMs(NOW_MS),
    } as const;
    const summary = { totalReplicas: 4, aggregatedAvailableReplicas: 4, estimatedAvailableReplicas: 4 };
    const status = { cells: [], summary, ...made.status, conditions: [condition] };
    const view = viewProtector({ ...made, metadata: { ...made.metadata, finalizers, ...metadata }, status }, NOW_MS);
    return protectorFindings([view]).map(({ advice }) => advice);
  };

  test("are given up with their workload only where that is what is deleted, not the CRD or the namespace", () => {
    expect(adviceOn({}, "SourceDeleting")[0]).toContain("scale the workload to zero, or give them up");
    const [advice] = adviceOn({ deletionTimestamp: formatMs(NOW_MS) });
    expect(advice).toContain("they stay in force, and are created again once that is possible");
    expect(advice).not.toContain("give them up");
  });
});

test("what is Off by the generator's flag, which no annotation says, is told to be set", () => {
  const off = viewProtector(makeProtector([makeCell("a", 4)], { enforcement: "Off" }), NOW_MS);
  const [found] = protectorFindings([off]);
  expect(found?.advice).toContain("set podseidon.kubewharf.io/enforcement to Enforce at the workload or its namespace");
});

test("a protector that only warns is not in order: nothing denies a deletion of its pods", () => {
  const warns = viewProtector(makeProtector([makeCell("a", 4)], { enforcement: "Warn" }), NOW_MS);
  expect(protectorFindings([warns]).map(line)).toEqual([
    "warning protectors: 1 only warned of: default/web",
    "ok reservations: none",
  ]);
});
