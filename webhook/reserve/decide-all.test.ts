import { describe, expect, test } from "vitest";
import { ProtectorVersion } from "../../shared/decide/state/protector-version.ts";
import { disruption, pod, protector } from "../../test/support/webhook/fixtures.ts";
import { decideAll } from "./decide-all.ts";
import type { Allowance, Denial, Verdict } from "./verdict.ts";

const id = { core: "a", namespace: "default", name: "web" };
const facts = { minAvailable: 5, available: 5, unreliable: 0, estimated: 5, reserved: 0, notReady: 0 };
const instead = { allowed: false, kind: "Denial", cause: "AtMinimum", facts } as const;
const version = new ProtectorVersion(protector(5), 0);

function allowance(more: object = {}): Allowance {
  const decision = { allowed: true, reason: "Reserved", write: "none", facts, ...more } as const;
  return { protector: id, decision: { kind: "allowed", decision, version, written: true } };
}
const denial: Denial = { protector: id, decision: { kind: "denied", decision: instead, version } };

/** Three pods, of which each is allowed by the evaluation; `second` is the verdict on the second pod afterwards. */
async function afterEvaluation(second: Verdict, rolledBack: string[] = []) {
  const pods = ["x", "y", "z"].map((name) => pod(name));
  const decide = (one: { readonly pod: { readonly name: string }; readonly together?: object }): Verdict => {
    if (one.together !== undefined) return { kind: "allowed", decisions: [allowance()] };
    if (one.pod.name === "y") return second;
    return { kind: "allowed", decisions: [allowance()], rollBack: () => void rolledBack.push(one.pod.name) };
  };
  return await decideAll(
    { decide },
    pods.map((one) => disruption(one)),
  );
}

describe("several disruptions, of which all were allowed by an evaluation", () => {
  test.each<[string, Verdict]>([
    ["has failed", { kind: "failed", tag: "deadline", message: "late" }],
    ["was abandoned", { kind: "abandoned" }],
  ])("are not decided when the reservation of one %s", async (_, second) => {
    expect(await afterEvaluation(second)).toEqual(second);
  });

  test("are denied when the reservation of one is, and the others are rolled back once it is told", async () => {
    const rolledBack: string[] = [];
    const verdict = await afterEvaluation({ kind: "denied", decisions: [denial], rollBack: undefined }, rolledBack);
    expect(verdict).toMatchObject({ kind: "denied", denied: [{ denial, pods: [{ name: "y" }] }] });
    expect(rolledBack).toEqual([]);
    if (verdict.kind === "denied") verdict.rollBack?.();
    expect(rolledBack).toEqual(["x", "z"]);
  });

  test("are allowed when one pod is gone meanwhile", async () => {
    expect(await afterEvaluation({ kind: "podGone" })).toMatchObject({ kind: "allowed" });
  });

  test("are allowed with the denials by a protector that only warns", async () => {
    const warned = await afterEvaluation({ kind: "allowed", decisions: [allowance({ instead })] });
    expect(warned).toMatchObject({ kind: "allowed", unenforced: [{ pods: [{ name: "y" }] }] });
    const quiet = await afterEvaluation({ kind: "allowed", decisions: [allowance()] });
    expect(quiet).not.toHaveProperty("unenforced");
  });
});
