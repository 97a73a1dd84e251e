/** Every replica starts after the loss of the protector: what they know is what the cell has kept (design 7), and the checks see when they do not. */
import { afterEach, expect, it, vi } from "vitest";
import { ProtectorCache } from "../../../webhook/reserve/protector-cache.ts";
import { OWN_NAMESPACE } from "../judge/admission-rows.ts";
import { SceneStage } from "./stage.ts";

const PROTECTOR = "podprotectors/default/web";
const UNTOLD = "copies: let go by a replica that nobody has told of a loss";

afterEach(() => vi.restoreAllMocks());

async function afterTheLoss(): Promise<SceneStage> {
  const features = { copiesEveryMs: Number.MAX_SAFE_INTEGER };
  const stage = await SceneStage.open({ pods: 5, protectors: [{ minAvailable: 4 }], features });
  for (const replica of stage.world.webhooks) replica.kill();
  stage.world.webhooks = [];
  for (const node of stage.cell.aggregators) node.kill();
  stage.cell.aggregators = [];
  stage.world.coreOf("web").etcd.delete(PROTECTOR);
  return stage;
}

/** The status code of a deletion by way of a replica that starts now. */
async function asked(stage: SceneStage): Promise<number> {
  stage.world.webhooks = [stage.world.startReplica()];
  await stage.pass(1_000);
  const reply = stage.removed(stage.pod(0));
  await stage.pass(1_000);
  return await reply;
}

it("refuses by the copy, and no longer once the protector is back and counted", async () => {
  const stage = await afterTheLoss();
  expect(await asked(stage)).toBe(429);
  stage.cell.aggregators = [stage.world.startAggregator(stage.cell)];
  await stage.pass(120_000);
  expect(stage.world.coreOf("web").etcd.get(PROTECTOR)).toBeDefined();
  expect(await asked(stage)).toBe(200);
  await stage.rest();
  expect(stage.violations).toEqual([]);
});

it("lets go what nobody has told it of, which is no violation", async () => {
  const stage = await afterTheLoss();
  const { etcd } = stage.cell.server;
  for (const { key } of etcd.range(`configmaps/${OWN_NAMESPACE}/`)) etcd.delete(key);
  expect(await asked(stage)).toBe(200);
  expect(stage.violations).toEqual([]);
  expect(stage.world.coverage.rules.get(UNTOLD)).toBe(1);
});

it("violates S11 where it does not heed what it has read", async () => {
  const stage = await afterTheLoss();
  vi.spyOn(ProtectorCache.prototype, "adopt").mockReturnValue();
  expect(await asked(stage)).toBe(200);
  expect(stage.violations.map(({ invariant }) => invariant)).toEqual(["S11"]);
});
