import { expect, test } from "vitest";
import { silentLog } from "../shared/observe/log.ts";
import { Metrics } from "../shared/observe/metrics.ts";
import { serving } from "../test/support/kube/https-server.ts";
import { VirtualTime } from "../test/support/runtime/virtual-ports.ts";
import { HttpError } from "./http/call.ts";
import { declareGauges, observeWebhook } from "./observe.ts";

const time = new VirtualTime();

test.each([400, 401, 403, 404, 405, 413, 415, 503] as const)(
  "a call rejected with %i counts as such",
  async (status) => {
    const metrics = new Metrics();
    const { message: reason } = new HttpError(status, "why");
    observeWebhook(metrics, silentLog)({ kind: "rejected", status, reason });
    const { body } = await metrics.render();
    expect(body).toContain(`podseidon_webhook_rejected_calls_total{status="${status}"} 1`);
    expect(body).toContain('podseidon_webhook_rejected_calls_total{status="500"} 0');
  },
);

test("a core that was never reached has an age, for the alert PodseidonCacheStale", async () => {
  const metrics = new Metrics();
  const nothing = { size: 0, lostCount: 0, lost: () => [], leftOut: 0, suspended: () => 0 };
  const confirmedMs = time.clock.monotonicMs() + 30_000;
  const cores = [
    { name: "away", ...nothing, cacheAgeMs: () => Number.POSITIVE_INFINITY },
    { name: "there", ...nothing, cacheAgeMs: (nowMs: number) => nowMs - confirmedMs },
  ];
  const certificate = { cert: serving.certificatePem, key: serving.privateKeyPem };
  declareGauges(metrics, { inFlight: 0, bodyBytes: 0, certificate }, cores, time.clock);
  await time.advance(40_000);
  const { body } = await metrics.render();
  expect(body).toContain('podseidon_webhook_cache_age_seconds{core="away"} 40\n');
  expect(body).toContain('podseidon_webhook_cache_age_seconds{core="there"} 10\n');
});
