import { expect, test } from "vitest";
import { createLog } from "../../shared/observe/log.ts";
import { Metrics } from "../../shared/observe/metrics.ts";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { observeEvictions } from "./observe.ts";

test("the pods of a zone that fails while no webhook answers fill no log with their tries", async () => {
  const time = new VirtualTime();
  const lines: string[] = [];
  const noted: string[] = [];
  const log = createLog({ component: "eviction-retry", destination: { write: (line) => lines.push(line) } });
  const metrics = new Metrics();
  const events = { record: ({ reason }: { readonly reason: string }) => void noted.push(reason) };
  const observe = observeEvictions(metrics, log, events, time.clock);
  const tryAll = (isFirst: boolean): void => {
    for (let index = 0; index < 1000; index++) {
      const pod = { namespace: "shop", name: `web-${index}`, uid: `${index}` };
      observe({
        kind: "failed",
        pod,
        node: "node-1",
        taints: ["unreachable"],
        isFirst,
        message: "failed calling webhook",
      });
    }
  };
  tryAll(true);
  tryAll(false);
  expect([lines.length, noted.length]).toEqual([1, 1000]);
  await time.advance(10_000);
  tryAll(false);
  expect(lines).toHaveLength(2);
  expect(lines.at(-1)).toContain('"more":1999');
  expect((await metrics.render()).body).toContain('podseidon_eviction_retry_evictions_total{outcome="failed"} 3000');
});
