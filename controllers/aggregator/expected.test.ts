import { expect, test } from "vitest";
import { specHash } from "../../shared/decide/availability/spec-facts.ts";
import type { Transport } from "../../shared/kube/client/transport.ts";
import type { PodProtectorSpec } from "../../shared/schema/podprotector.ts";
import { AggregatorHarness } from "../../test/support/aggregator/aggregator-harness.ts";
import { JSON_TYPE, ScriptedStream } from "../../test/support/kube/scripted-transport.ts";
import { ExpectedPods } from "./counting/expected-pods.ts";

const NONE = JSON.stringify({ metadata: { resourceVersion: "9" }, items: [] });
const withoutWorkloads: Transport = {
  request: async () => ({ status: 200, headers: {}, body: NONE }),
  stream: async ({ signal }) => {
    const chunks = new ScriptedStream().read(signal);
    return { status: 200, headers: JSON_TYPE, chunks, close: () => {} };
  },
  close: () => {},
};

test("a cell whose workloads were erased keeps their number until other pods are selected", async () => {
  const harness: AggregatorHarness = new AggregatorHarness({
    async expectedPods(onChanged) {
      const options = { transport: withoutWorkloads, ports: harness.time, scalable: [], namespace: "" };
      return new ExpectedPods({ ...options, onWatch: () => {}, onChanged });
    },
  });
  const { core, cell } = harness;
  const { spec } = core.put("p", { countExpectedPods: true });
  const counted = { totalReplicas: 0, availableReplicas: 0, resourceVersion: String(cell.version), epoch: 0 };
  const aggregation = { ...counted, expectedReplicas: 3, specHash: specHash(spec) };
  const summary = { totalReplicas: 0, aggregatedAvailableReplicas: 0, estimatedAvailableReplicas: 0 };
  core.put("p", { countExpectedPods: true }, { status: { cells: [{ cellID: "cell", aggregation }], summary } });
  await harness.start();
  const publishedBy = async (change: Partial<PodProtectorSpec>): Promise<number | undefined> => {
    core.edit("p", (object) => ({ ...object, spec: { ...object.spec, ...change } }));
    await harness.run(1_000);
    const published = core.entry("p")?.aggregation;
    expect(published?.specHash).toBe(specHash(core.get("p").spec));
    return published?.expectedReplicas;
  };
  expect(await publishedBy({ minAvailable: 2 })).toBe(3);
  expect(await publishedBy({ minReadySeconds: 5 })).toBe(3);
  expect(await publishedBy({ selector: { matchLabels: { app: "q" } } })).toBe(0);
});
