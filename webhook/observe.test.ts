import { expect, test } from "vitest";
import { type Log, silentLog } from "../shared/observe/log.ts";
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
    observeWebhook(metrics, silentLog, time.clock)({ kind: "rejected", status, reason });
    const { body } = await metrics.render();
    expect(body).toContain(`podseidon_webhook_rejected_calls_total{status="${status}"} 1`);
    expect(body).toContain('podseidon_webhook_rejected_calls_total{status="500"} 0');
  },
);

/** What is logged, by level. */
function recordingLog(): { readonly log: Log; readonly lines: [string, unknown, string][] } {
  const lines: [string, unknown, string][] = [];
  const write =
    (level: string) =>
    (fields: object, message: string): void =>
      void lines.push([level, fields, message]);
  const log = { ...silentLog, debug: write("debug"), info: write("info"), warn: write("warn"), error: write("error") };
  return { log, lines };
}

test("a cell whose every call is rejected shows in the log, once in ten seconds for each status", async () => {
  const { log, lines } = recordingLog();
  const observe = observeWebhook(new Metrics(), log, time.clock);
  const call = (status: number, reason: string): void => observe({ kind: "rejected", status, reason });
  for (const _ of [1, 2, 3]) call(404, 'no cell "b" is configured here');
  call(401, "no token");
  call(405, "send an AdmissionReview by POST");
  await time.advance(10_000);
  call(404, 'no cell "b" is configured here');
  const message = expect.any(String);
  expect(lines).toEqual([
    ["warn", { status: 404, reason: 'no cell "b" is configured here', more: 0 }, message],
    ["warn", { status: 401, reason: "no token", more: 0 }, message],
    ["debug", expect.anything(), message],
    ["warn", { status: 404, reason: 'no cell "b" is configured here', more: 2 }, message],
  ]);
});

test("a defect in what follows the protectors is an error, and counted as a defect", async () => {
  const { log, lines } = recordingLog();
  const metrics = new Metrics();
  const event = { kind: "handlerFailed", error: new Error("a bug") } as const;
  observeWebhook(metrics, log, time.clock)({ kind: "watch", core: "core", event });
  expect(lines.map(([level]) => level)).toEqual(["error"]);
  expect((await metrics.render()).body).toContain("podseidon_webhook_defects_total 1\n");
});

test("a new certificate that can't be used shows until one can, for its alert", async () => {
  const metrics = new Metrics();
  const observe = observeWebhook(metrics, silentLog, time.clock);
  const shown = async (): Promise<string | undefined> =>
    /^podseidon_webhook_certificate_unusable (\d)$/m.exec((await metrics.render()).body)?.[1];
  expect(await shown()).toBe("0");
  observe({ kind: "certificateUnusable", error: new Error("half a pair") });
  expect(await shown()).toBe("1");
  observe({ kind: "certificateReloaded", file: "tls.crt" });
  expect(await shown()).toBe("0");
});

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
