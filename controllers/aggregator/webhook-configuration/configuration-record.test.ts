import { expect, test } from "vitest";
import { ApiClient } from "../../../shared/kube/client/api-client.ts";
import type { ApiRequest, ApiResponse } from "../../../shared/kube/client/transport.ts";
import { ConfigurationRecord } from "./configuration-record.ts";
import type { DesiredConfiguration } from "./desired-configuration.ts";

const KIND = "ValidatingWebhookConfiguration";
const { signal } = new AbortController();
const DESIRED: DesiredConfiguration = {
  declared: {
    apiVersion: "admissionregistration.k8s.io/v1",
    kind: KIND,
    metadata: { name: "podseidon", labels: {}, annotations: {} },
    webhooks: [],
  },
  bundles: { one: "Y2E=" },
  declarers: [],
  applied: "{}",
};

function refusal(status: number, reason: string): ApiResponse {
  const details = { name: "podseidon-registration", kind: "configmaps" };
  return { status, headers: {}, body: JSON.stringify({ kind: "Status", reason, details }) };
}

/** A cell with room for one ConfigMap, which answers a method with the refusal that is set for it. */
class Cell {
  data: Record<string, string> | undefined;
  readonly refusals = new Map<string, ApiResponse>();
  readonly failures: string[] = [];

  /** A process that starts. */
  record(): ConfigurationRecord {
    const api = new ApiClient({ request: (one) => this.#answer(one), stream: () => Promise.reject(), close() {} });
    const onFailed = (message: string): number => this.failures.push(message);
    return new ConfigurationRecord({ api, namespace: "podseidon-system", timeoutMs: 1_000, onFailed });
  }

  async #answer({ method, body = "{}" }: ApiRequest): Promise<ApiResponse> {
    const refused = this.refusals.get(method);
    if (refused !== undefined) return refused;
    if (method !== "POST" && this.data === undefined) return refusal(404, "NotFound");
    if (method !== "GET") this.data = { ...this.data, ...JSON.parse(body).data };
    const metadata = { name: "podseidon-registration", namespace: "podseidon-system", uid: "u", resourceVersion: "1" };
    return { status: 200, headers: {}, body: JSON.stringify({ metadata, data: this.data }) };
  }
}

test("what was stored is known after a restart, in a ConfigMap that is made when it is missing", async () => {
  const cell = new Cell();
  const first = cell.record();
  expect(await first.read(signal)).toBe(true);
  expect(first.get(KIND)).toBeUndefined();
  expect(await first.put(KIND, DESIRED, signal)).toBeUndefined();
  expect(await first.put("Mutating", DESIRED, signal)).toBeUndefined();
  const second = cell.record();
  expect(await second.read(signal)).toBe(true);
  expect([second.get(KIND), second.get("Mutating")]).toEqual([DESIRED, DESIRED]);
  expect(cell.failures).toEqual([]);
});

test.each<[string, ApiResponse, boolean]>([
  ["no answer", refusal(503, "ServiceUnavailable"), false],
  ["no permission", refusal(403, "Forbidden"), true],
])("a read with %s is told of", async (_, refused, isOver) => {
  const cell = new Cell();
  cell.refusals.set("GET", refused);
  expect(await cell.record().read(signal)).toBe(isOver);
  expect(cell.failures).toHaveLength(1);
});

test.each<[string, ApiResponse, boolean]>([
  ["no answer", refusal(503, "ServiceUnavailable"), true],
  ["no permission", refusal(403, "Forbidden"), false],
])("a form that could not be stored, with %s, is known to this process", async (_, refused, isFailure) => {
  const cell = new Cell();
  cell.refusals.set("PATCH", refused);
  const record = cell.record();
  expect((await record.put(KIND, DESIRED, signal)) !== undefined).toBe(isFailure);
  expect(record.get(KIND)).toEqual(DESIRED);
});

test("without its namespace, nothing is stored, and that is no failure", async () => {
  const cell = new Cell();
  cell.refusals.set("POST", refusal(404, "NotFound"));
  expect(await cell.record().put(KIND, DESIRED, signal)).toBeUndefined();
  expect(cell.data).toBeUndefined();
});

test("a record that can't be read counts as absent, and the others as they are", async () => {
  const cell = new Cell();
  await cell.record().put(KIND, DESIRED, signal);
  cell.data = { Mutating: "{", ...cell.data };
  const record = cell.record();
  expect(await record.read(signal)).toBe(true);
  expect([record.get("Mutating"), record.get(KIND)]).toEqual([undefined, DESIRED]);
  expect(cell.failures).toEqual([expect.stringContaining("the record of Mutating cannot be read")]);
});
