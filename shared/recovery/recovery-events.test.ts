import { expect, test } from "vitest";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { createLog } from "../observe/log.ts";
import { Metrics } from "../observe/metrics.ts";
import { observeRecovery } from "./recovery-events.ts";

test("the protectors of a core that takes none back, as without its CRD, fill no log with their tries", async () => {
  const time = new VirtualTime();
  const lines: string[] = [];
  const log = createLog({ component: "aggregator", destination: { write: (line) => lines.push(line) } });
  const metrics = new Metrics();
  const observe = observeRecovery(metrics, log, time.clock);
  const tryAll = (core: string): void => {
    for (let index = 0; index < 200; index++)
      observe({ kind: "recreateFailed", core, protector: `shop/web-${index}`, uid: `${index}`, message: "HTTP 404" });
  };
  tryAll("core-1");
  tryAll("core-2");
  expect(lines).toHaveLength(2);
  await time.advance(10_000);
  tryAll("core-1");
  expect(lines).toHaveLength(3);
  expect(lines.at(-1)).toContain('"more":199');
  expect((await metrics.render()).body).toContain('aggregator_backup_events_total{event="recreateFailed"} 600');
});
