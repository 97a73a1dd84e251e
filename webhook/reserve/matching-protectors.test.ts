import { expect, test } from "vitest";
import { disruption, pod, protector } from "../../test/support/webhook/fixtures.ts";
import { type Protected, world } from "../../test/support/webhook/pipeline-harness.ts";
import type { Verdict } from "./verdict.ts";

const full = (name: string): Protected => ({ core: "a", object: protector(10, { name }) });

const counts = ({ core, object }: Protected, value: string): Protected => {
  const aggregationSelector = { matchLabels: { app: "web", tier: value } };
  return { core, object: { ...object, spec: { ...object.spec, aggregationSelector } } };
};

test("a change of labels concerns the protector whose counted selector does not select the pod any more", async () => {
  const w = world([counts(full("a"), "front"), counts(full("b"), "back"), full("c")]);
  const web = pod("web-0", { labels: { app: "web", tier: "front" } });
  const relabelled = (tier: string): Promise<Verdict> =>
    w.decide({ ...disruption(web), labelsAfter: { app: "web", tier } });
  expect(await relabelled("front")).toEqual({ kind: "allowed", decisions: [] });
  const verdict = await relabelled("back");
  expect(verdict).toMatchObject({ kind: "denied", decisions: [{ protector: { name: "a" } }] });
  if (verdict.kind === "denied") expect(verdict.decisions).toHaveLength(1);
});

test("a counted selector, which may have thousands of values, is read once for all changes of labels", async () => {
  const { core, object } = full("a");
  const reads: string[] = [];
  const aggregationSelector = {
    get matchLabels() {
      reads.push("matchLabels");
      return { tier: "front" };
    },
  };
  const w = world([{ core, object: { ...object, spec: { ...object.spec, aggregationSelector } } }]);
  const web = pod("web-0", { labels: { app: "web", tier: "front" } });
  const relabel = (): Promise<Verdict> =>
    w.decide({ ...disruption(web), labelsAfter: { app: "web", tier: "front", any: "other" } });
  await relabel();
  const before = reads.length;
  await relabel();
  expect(reads.slice(before)).toEqual([]);
});

test("so it does where a read did not find that protector, by its last version", async () => {
  const w = world([{ ...counts(full("a"), "front"), vanishes: true }]);
  const web = pod("web-0", { labels: { app: "web", tier: "front" } });
  w.stores.get("a/a")?.remove();
  const denied = { kind: "denied", decisions: [{ decision: { kind: "lost" } }] };
  expect(await w.decide(disruption(web))).toMatchObject(denied);
  expect(await w.decide({ ...disruption(web), labelsAfter: { app: "web", tier: "back" } })).toMatchObject(denied);
});
