/**
 * A rollout that deletes an old pod as soon as a new one is Ready (maxSurge 1, maxUnavailable 0). Every pod is needed.
 */
import { expect, it } from "vitest";
import { isTrue } from "../apiserver/pod-conditions.ts";
import { SceneStage } from "./stage.ts";

const PODS = 5;
const STEP_MS = 100;
const PATIENCE_MS = 60_000;
/** The aggregator lags for longer than a workload controller needs to see that a pod is Ready. */
const LAG_MS = 1_000;
/** The webhook does not wait for a count that is later than this. */
const LONG_LAG_MS = 3_000;

/** How many deletions are denied during a rollout of every pod. */
async function refusals(isGated: boolean, lagMs = LAG_MS): Promise<number> {
  const features = isGated ? { countedGateEveryMs: Number.MAX_SAFE_INTEGER } : {};
  const stage = await SceneStage.open({ pods: PODS, protectors: [{ minAvailable: PODS }], features });
  stage.watchLag("cell-1", lagMs);
  let refused = 0;
  for (const [index, old] of stage.pods().entries()) {
    const made = stage.create(`web-new-${index}`);
    const isReady = (): boolean => isTrue(stage.cell.server.etcd.get(made)?.value ?? {}, "Ready");
    for (let ms = 0; !isReady() && ms < PATIENCE_MS; ms += STEP_MS) await stage.pass(STEP_MS);
    expect(isReady()).toBe(true);
    for (let code = await asked(stage, old); code === 429; code = await asked(stage, old)) refused += 1;
  }
  await stage.end();
  expect(stage.violations).toEqual([]);
  return refused;
}

async function asked(stage: SceneStage, key: string): Promise<number> {
  let code: number | undefined;
  void stage.deleted(key).then((answered) => {
    code = answered;
  });
  for (let ms = 0; code === undefined && ms < PATIENCE_MS; ms += STEP_MS) await stage.pass(STEP_MS);
  expect(code).toBeDefined();
  await stage.pass(1_000);
  return code ?? 0;
}

it("a rollout is never denied where new pods have the counted gate", async () => {
  expect(await refusals(true)).toBe(0);
});

it("a rollout is denied for a moment where readiness is counted later than the webhook waits", async () => {
  expect(await refusals(true, LONG_LAG_MS)).toBeGreaterThan(0);
});

it("a rollout is denied without the gate, while the count is late", async () => {
  expect(await refusals(false)).toBeGreaterThan(0);
});
