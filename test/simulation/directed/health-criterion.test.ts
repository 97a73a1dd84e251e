/** Readiness collapses while every pod runs (docs/design.md#criterion-of-a-protector). */
import { expect, it } from "vitest";
import { SceneStage } from "./stage.ts";

const PODS = 6;
const FLOOR = 4;

/** All pods become unready, then all are deleted at once. Resolves with the answers. */
async function collapsed(criterion: string, how: "deleted" | "evicted"): Promise<readonly number[]> {
  const stage = await SceneStage.open({ pods: PODS, protectors: [{ minAvailable: FLOOR }] });
  stage.edit("web", { healthCriterion: criterion });
  await stage.pass(2_000);
  const pods = stage.pods();
  for (const pod of pods) stage.setReady(pod, false);
  await stage.pass(2_000);
  const uids = pods.map((pod) => stage.uid(pod));
  const asked = pods.map((pod) => stage[how](pod));
  await stage.pass(5_000);
  const answers = await Promise.all(asked);
  // A pod of the same name may have taken the place of one that is gone.
  const left = new Set(stage.pods().map((pod) => stage.uid(pod)));
  expect(uids.filter((uid) => left.has(uid))).toHaveLength(answers.filter((code) => code === 429).length);
  await stage.end();
  expect(stage.violations).toEqual([]);
  return answers;
}

it.for(["deleted", "evicted"] as const)("a protector of running pods keeps its floor when all are %s", async (how) => {
  const answers = await collapsed("Running", how);
  expect(answers.filter((code) => code === 429)).toHaveLength(FLOOR);
});

it("a protector of available pods has none to keep", async () => {
  expect(await collapsed("Available", "deleted")).not.toContain(429);
});

it("a criterion that changes is counted again before anything goes by it", async () => {
  const stage = await SceneStage.open({ pods: PODS, protectors: [{ minAvailable: FLOOR }] });
  const pods = stage.pods();
  for (const pod of pods.slice(0, 3)) stage.setReady(pod, false);
  await stage.pass(2_000);
  stage.pauseAggregators();
  stage.edit("web", { healthCriterion: "Running" });
  await stage.pass(2_000);
  const asked = stage.deleted(stage.pod(0));
  await stage.pass(2_000);
  expect(await asked).toBe(429);
  await stage.end();
  expect(stage.violations).toEqual([]);
});
