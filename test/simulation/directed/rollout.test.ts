/** A rollout that deletes an old pod as soon as a new one is Ready (maxSurge 1, maxUnavailable 0), where every pod is needed. */
import { expect, it } from "vitest";
import { isTrue } from "../apiserver/pod-conditions.ts";
import { SceneStage } from "./stage.ts";

const PODS = 5;
const STEP_MS = 100;
const PATIENCE_MS = 60_000;
/** So long the aggregator is behind: longer than it takes until somebody sees that a pod is Ready. */
const LAG_MS = 3_000;

/** How often a deletion was refused, over a rollout of every pod. */
async function refusals(isGated: boolean): Promise<number> {
  const features = isGated ? { gateEveryMs: Number.MAX_SAFE_INTEGER } : {};
  const stage = await SceneStage.open({ pods: PODS, protectors: [{ minAvailable: PODS }], features });
  stage.watchLag("cell-1", LAG_MS);
  let refused = 0;
  for (const [index, old] of stage.pods().entries()) {
    const made = stage.create(`web-new-${index}`);
    const isReady = (): boolean => isTrue(stage.cell.server.etcd.get(made)?.value ?? {}, "Ready");
    for (let ms = 0; !isReady() && ms < PATIENCE_MS; ms += STEP_MS) await stage.pass(STEP_MS);
    expect(isReady()).toBe(true);
    for (let code = await asked(stage, old); code === 429; code = await asked(stage, old)) refused += 1;
  }
  await stage.rest();
  expect(stage.violations).toEqual([]);
  return refused;
}

async function asked(stage: SceneStage, key: string): Promise<number> {
  const reply = stage.removed(key);
  await stage.pass(1_000);
  return await reply;
}

it("meets no refusal where new pods have the counted gate", async () => {
  expect(await refusals(true)).toBe(0);
});

it("is refused where they have not, and the count comes late", async () => {
  expect(await refusals(false)).toBeGreaterThan(0);
});
