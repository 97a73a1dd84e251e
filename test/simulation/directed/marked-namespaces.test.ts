/**
 * A first protector in a namespace of a cluster that asks about marked namespaces alone: the promise begins only when
 * every apiserver has seen the mark (docs/design.md#marked-namespaces).
 */
import { expect, it } from "vitest";
import type { AdmissionChain } from "../apiserver/admission.ts";
import { metadataOf, record } from "../apiserver/objects.ts";
import { parseStored } from "../truth/stored-protectors.ts";
import { SceneStage } from "./stage.ts";

const PODS = 60;
const NAMESPACE = "namespaces//default";
const MARK = "podseidon.kubewharf.io/enforced-namespace";
const EVERY_MS = 500;
const STEPS = 50;
const UNASKED = { allowed: true, code: 200, message: "" };

/** An apiserver asks the webhook where its copy of the namespace, which is `lagMs` old, has the mark. */
function askWhereMarked({ world, cell }: SceneStage, lagMs: number): void {
  const { server } = cell;
  const asked = server.admission;
  if (asked === undefined) throw new Error("the cell has no admission");
  let markedMs = Number.POSITIVE_INFINITY;
  server.etcd.observe(({ key, after }) => {
    const isMarked = key === NAMESPACE && record(metadataOf(after?.value ?? {}).labels)[MARK] === "true";
    if (isMarked) markedMs = Math.min(markedMs, world.time.elapsedMs);
  });
  const chain: AdmissionChain = {
    validate: async (request) => (world.time.elapsedMs >= markedMs + lagMs ? await asked.validate(request) : UNASKED),
    mutateEviction: (request) => asked.mutateEviction(request),
    settled: (request, committed) => asked.settled(request, committed),
  };
  server.admission = chain;
}

function isCounted({ world }: SceneStage): boolean {
  const stored = world.coreOf("web").etcd.get("podprotectors/default/web");
  return stored !== undefined && parseStored(stored).status?.cells.at(0)?.aggregation !== undefined;
}

/** The responses to deletions before the first count, and after it. */
async function deletionsAround(lagMs: number): Promise<{ readonly before: number[]; readonly after: number[] }> {
  const stage = await SceneStage.open({ pods: PODS, protectors: [{ minAvailable: PODS }], isProtected: false });
  for (const node of stage.cell.aggregators) node.kill();
  stage.cell.server.etcd.put(NAMESPACE, { metadata: { name: "default", uid: "namespace" } });
  askWhereMarked(stage, lagMs);
  stage.cell.aggregators = [stage.world.startAggregator(stage.cell, true)];
  await stage.pass(5_000);
  for (const plan of stage.world.scenario.protectors) stage.world.createProtector(plan);
  const codes = { before: [] as number[], after: [] as number[] };
  for (let step = 0; step < STEPS; step++) {
    const part = isCounted(stage) ? codes.after : codes.before;
    const deleted = stage.deleted(stage.pod(0));
    await stage.pass(EVERY_MS);
    part.push(await deleted);
  }
  return codes;
}

it.each([0, 3_000, 9_900])(
  "an apiserver that is %i ms behind lets nothing pass unasked once a pod is counted",
  async (lagMs) => {
    const { before, after } = await deletionsAround(lagMs);
    expect(before).toContain(200);
    expect(after.length).toBeGreaterThan(10);
    expect(new Set(after)).toEqual(new Set([429]));
  },
);

it("one that is further behind than the wait lets deletions pass: this scene would show it", async () => {
  const { after } = await deletionsAround(15_000);
  expect(after).toContain(200);
});
