import { expect, test } from "vitest";
import { silentLog } from "../shared/observe/log.ts";
import { Metrics } from "../shared/observe/metrics.ts";
import { HttpError } from "./http/call.ts";
import { observeWebhook } from "./observe.ts";

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
