/** A suspension ends while a disruption that it allowed can still be committed. */
import { expect, it } from "vitest";
import { SceneStage } from "./stage.ts";

it.for([0, 1, 100])(
  "the disruption is recorded, and counts from then on (compactThreshold %i)",
  async (compactThreshold) => {
    const stage = await SceneStage.open({ pods: 4, protectors: [{ minAvailable: 3, compactThreshold }] });
    const [first, second] = [stage.pod(0), stage.pod(1)];
    stage.edit("web", { suspend: { enabled: true } });
    await stage.pass(1_000);
    stage.commitAfter(20_000);
    const allowed = stage.deleted(first);
    await stage.pass(1_000);
    stage.edit("web", { suspend: null });
    await stage.pass(1_000);
    stage.commitAfter(1);
    const denied = stage.deleted(second);
    await stage.pass(1_000);
    expect(await denied).toBe(429);
    await stage.pass(30_000);
    expect(await allowed).toBe(200);
    await stage.end();
    expect(stage.violations).toEqual([]);
  },
);

it("a suspended protector allows while its core does not take the record", async () => {
  const stage = await SceneStage.open({ pods: 4, protectors: [{ minAvailable: 4 }] });
  stage.edit("web", { suspend: { enabled: true } });
  await stage.pass(1_000);
  stage.world.network.setLinks("webhook", "core", { requestsLost: true });
  const allowed = stage.deleted(stage.pod(0));
  await stage.pass(2_000);
  stage.world.network.setLinks("webhook", "core", { requestsLost: false });
  expect(await allowed).toBe(200);
  await stage.end();
  expect(stage.violations).toEqual([]);
});
