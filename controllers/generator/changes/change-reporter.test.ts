import { expect, test } from "vitest";
import type { ApiClient } from "../../../shared/kube/client/api-client.ts";
import type { EventNote } from "../../../shared/observe/event-recorder.ts";
import { silentLog } from "../../../shared/observe/log.ts";
import { Metrics } from "../../../shared/observe/metrics.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { protector } from "../../../test/support/webhook/fixtures.ts";
import { changeReporter } from "./change-reporter.ts";

const entry = (manager: string, time: string, field: string) => ({
  ...{ manager, time, operation: "Update" },
  fieldsV1: { "f:spec": { [`f:${field}`]: {} } },
});

function setup(answer: object | "unavailable") {
  const notes: EventNote[] = [];
  const time = new VirtualTime();
  const api: Pick<ApiClient, "get"> = {
    get: async (_path, parse) =>
      answer === "unavailable"
        ? { kind: "unavailable", sent: false, error: new Error("down") }
        : { kind: "ok", object: parse({ metadata: answer }) },
  };
  const tell = changeReporter({
    ...{ api, clock: time.clock, log: silentLog, metrics: new Metrics(), ownName: "podseidon-generator" },
    events: { record: (note) => notes.push(note) },
  });
  const of = (generation: number, minAvailable: number) => {
    const made = protector(minAvailable);
    return { ...made, metadata: { ...made.metadata, generation } };
  };
  return { notes, lower: () => tell(of(1, 8), of(2, 4)) };
}

test.each<[string, object | "unavailable", string, string]>([
  [
    "the manager that wrote the field last",
    {
      generation: 2,
      managedFields: [
        entry("helm", "2026-01-01T00:00:00Z", "minAvailable"),
        entry("kubectl-edit", "2026-01-02T00:00:00Z", "minAvailable"),
        entry("other", "2026-01-03T00:00:00Z", "probe"),
      ],
    },
    "minAvailable changed from 8 to 4; by kubectl-edit",
    "Warning",
  ],
  [
    "the generator, which lowers a promise as the workload asks",
    { generation: 2, managedFields: [entry("podseidon-generator", "2026-01-01T00:00:00Z", "minAvailable")] },
    "minAvailable changed from 8 to 4; by podseidon-generator",
    "Normal",
  ],
  [
    "nobody, where the object has changed again",
    { generation: 3, managedFields: [entry("podseidon-generator", "2026-01-01T00:00:00Z", "minAvailable")] },
    "minAvailable changed from 8 to 4",
    "Warning",
  ],
  ["nobody, where the API does not answer", "unavailable", "minAvailable changed from 8 to 4", "Warning"],
])("names %s", async (_, answer, message, type) => {
  const { notes, lower } = setup(answer);
  lower();
  await expect
    .poll(() => notes)
    .toMatchObject([{ reason: "PromiseLowered", message, type, regarding: { kind: "PodProtector" } }]);
});
