/**
 * A core that is far from everybody, and pods that change all the time. Each write of the aggregator makes those of
 * webhooks that are on their way conflict.
 */
import { expect, it } from "vitest";
import { SceneStage } from "./stage.ts";

const FLAP_MS = 20;
/** A webhook of another cell is farther from the core than the aggregator that writes. */
const FARTHER = 1.5;

it.each([100, 250, 500])("a core %i ms away from the aggregator has reservations of webhooks stored", async (wayMs) => {
  const stage = await SceneStage.open({ pods: 8, protectors: [{ minAvailable: 4 }] });
  stage.world.network.setLinks("aggregator", "core", { fixedDelayMs: wayMs });
  stage.world.network.setLinks("webhook", "core", { fixedDelayMs: FARTHER * wayMs });
  const [restless = "", ...pods] = stage.pods();
  const codes: number[] = [];
  const deleteThree = async (): Promise<void> => {
    for (const pod of pods.slice(0, 3)) codes.push(await stage.deleted(pod));
  };
  void deleteThree();
  for (let flap = 0; flap < 40_000 / FLAP_MS; flap++) {
    stage.setReady(restless, flap % 2 === 0);
    await stage.pass(FLAP_MS);
  }
  expect(codes).toEqual([200, 200, 200]);
  expect(stage.violations).toEqual([]);
});
