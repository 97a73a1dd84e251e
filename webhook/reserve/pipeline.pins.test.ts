import { expect, test } from "vitest";
import { disruption, pod, protector, unready } from "../../test/support/webhook/fixtures.ts";
import { world } from "../../test/support/webhook/pipeline-harness.ts";
import type { LiveRead } from "../request/cell-client.ts";

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
