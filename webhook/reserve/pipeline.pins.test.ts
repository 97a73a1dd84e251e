import { expect, test } from "vitest";
import { disruption, pod, protector, unready } from "../../test/support/webhook/fixtures.ts";
import { world } from "../../test/support/webhook/pipeline-harness.ts";
import type { LiveRead } from "../request/cell-client.ts";
import type { Verdict } from "./verdict.ts";

test("an eviction that pays after slow writes is allowed once that is stored: its pin says nothing of it", async () => {
  const w = world([{ core: "a", object: protector(5, { name: "one" }) }]);
  const store = w.stores.get("a/one");
  if (store === undefined) throw new Error("no store");
  store.slowMs = 400;
  const reread = async (): Promise<LiveRead> => {
    store.faults.push("lostRequest");
    return { kind: "found", pod: pod("web-0"), sentMs: w.time.clock.monotonicMs() };
  };
  const given = { operation: "EVICT", podReadMs: 0, reread } as const;
  expect(await w.decide(disruption(unready("web-0"), given))).toMatchObject({
    kind: "allowed",
    decisions: [{ decision: { decision: { reason: "Reserved" } } }],
  });
  const [bucket] = store.object.status?.cells[0]?.admissionHistory?.buckets ?? [];
  expect(bucket).toMatchObject({ podUID: "uid-web-0", paid: true });
});

test("what a rolled back deletion has paid is left to no pin of an eviction that was rolled back, too", async () => {
  const w = world([
    { core: "a", object: protector(5, { name: "one" }) },
    { core: "a", object: protector(5, { name: "two" }) },
  ]);
  const asked = (operation: "DELETE" | "EVICT", of = pod("web-0")): Promise<Verdict> =>
    w.decide(disruption(of, { operation, arrivedMs: w.time.clock.monotonicMs() }));
  expect(await asked("EVICT", unready("web-0"))).toMatchObject({ kind: "allowed" });
  const needs = (minAvailable: number): void =>
    w.stores.get("a/two")?.put((object) => ({ ...object, spec: { ...object.spec, minAvailable } }));
  const rollBacks: (() => void)[] = [];
  for (const operation of ["DELETE", "EVICT"] as const) {
    needs(5);
    await w.time.advance(100);
    // Allows when all are evaluated, and has no quota when it is written.
    needs(10);
    const verdict = await asked(operation);
    expect(verdict).toMatchObject({ kind: "denied", decisions: [{ protector: { name: "two" } }] });
    if (verdict.kind === "denied" && verdict.rollBack !== undefined) rollBacks.push(verdict.rollBack);
  }
  expect(rollBacks).toHaveLength(2);
  for (const rollBack of rollBacks) rollBack();
  await w.time.advance(1_000);
  const buckets = w.stores.get("a/one")?.object.status?.cells[0]?.admissionHistory?.buckets ?? [];
  expect(buckets.map(({ operation, paid = false }) => [operation, paid])).toEqual([["EVICT", false]]);
});
