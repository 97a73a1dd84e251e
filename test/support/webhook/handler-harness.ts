/** AdmissionReviews as JSON, and a handler over a pipeline and a cell that the test sets. */
import { expect } from "vitest";
import type { QuotaFacts } from "../../../shared/decide/quota.ts";
import type { Pod } from "../../../shared/schema/pod.ts";
import { AdmissionHandler, type HandlerOptions } from "../../../webhook/handler.ts";
import type { HttpResponse } from "../../../webhook/http/call.ts";
import type { CellClient, LiveRead } from "../../../webhook/request/cell-client.ts";
import type { Disruption } from "../../../webhook/reserve/pipeline.ts";
import type { Denial, Verdict } from "../../../webhook/reserve/verdict.ts";
import type { AdmissionRecord } from "../../../webhook/respond/admission-response.ts";
import { singleAttempts } from "../../../webhook/respond/single-attempt.ts";
import { VirtualTime } from "../runtime/virtual-ports.ts";
import { pod } from "./fixtures.ts";

/** The address of every caller. */
export const CALLER = "10.0.0.1";

export type JsonObject = Readonly<Record<string, unknown>>;

/** The JSON of a Ready pod. */
export function podJson(change: { metadata?: JsonObject; status?: JsonObject } = {}): JsonObject {
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: {
      namespace: "default",
      name: "web-0",
      uid: "u",
      resourceVersion: "5",
      labels: { app: "web" },
      ...change.metadata,
    },
    spec: {},
    status: { phase: "Running", conditions: [{ type: "Ready", status: "True" }], ...change.status },
  };
}

export function admissionReview(request: JsonObject): string {
  return JSON.stringify({
    apiVersion: "admission.k8s.io/v1",
    kind: "AdmissionReview",
    request: {
      uid: "request-1",
      kind: { group: "", version: "v1", kind: "Pod" },
      resource: { group: "", version: "v1", resource: "pods" },
      namespace: "default",
      name: "web-0",
      operation: "DELETE",
      userInfo: { username: "eve" },
      ...request,
    },
  });
}

export const deletion = (object: JsonObject = podJson()): string => admissionReview({ oldObject: object });

export function eviction(change: JsonObject = {}, request: JsonObject = {}): string {
  const object = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name: "web-0" }, ...change };
  return admissionReview({ operation: "CREATE", subResource: "eviction", object, ...request });
}

export const denial = (verdict: "Denial" | "Busy", facts: Partial<QuotaFacts> = {}): Denial => ({
  protector: { core: "core", namespace: "default", name: "web" },
  decision: {
    kind: "denied",
    decision: {
      allowed: false,
      kind: verdict,
      cause: verdict === "Denial" ? "AtMinimum" : "Reserved",
      facts: { minAvailable: 8, available: 10, unreliable: 0, notReady: 0, reserved: 2, estimated: 8, ...facts },
    },
  },
});

export const ALLOWED: Verdict = { kind: "allowed", decisions: [] };
export const DENIED: Verdict = { kind: "denied", decisions: [denial("Denial")], rollBack: undefined };

export interface HandlerHarness {
  readonly asked: Disruption[];
  readonly records: AdmissionRecord[];
  ask(body: string, kind?: "validate" | "mutate", timeout?: string): Promise<HttpResponse>;
}

/** A handler whose pipeline returns `verdict`. Reads of the pod return the items of `live`, and then its last one. */
export function handler(
  verdict: Verdict | Verdict[] = ALLOWED,
  options: Partial<HandlerOptions> = {},
  ...live: LiveRead[]
): HandlerHarness {
  const time = new VirtualTime();
  const asked: Disruption[] = [];
  const records: AdmissionRecord[] = [];
  const verdicts = Array.isArray(verdict) ? [...verdict] : [verdict];
  const cell: CellClient = { id: "cell-1", readPod: readerOf(live) };
  const admission = new AdmissionHandler({
    cells: new Map([["cell-1", cell]]),
    pipeline: {
      decide: async (disruption) => {
        asked.push(disruption);
        return (verdicts.length > 1 ? verdicts.shift() : verdicts[0]) ?? ALLOWED;
      },
    },
    clock: time.clock,
    ownNamespace: "podseidon-system",
    dryRunMode: false,
    requireBoundEvictions: false,
    singleAttempts: singleAttempts([], 30_000),
    finished: (record) => records.push(record),
    ...options,
  });
  return {
    asked,
    records,
    ask: async (body, kind = "validate", timeout = "10s") =>
      admission.handle({ cell: "cell-1", kind, body, timeout, address: CALLER, isCallerGone: () => false }),
  };
}

function readerOf([...live]: LiveRead[]): CellClient["readPod"] {
  const [first] = live;
  if (first === undefined) return undefined;
  return async () => (live.length > 1 ? live.shift() : live[0]) ?? first;
}

export function responseOf(response: HttpResponse): JsonObject {
  expect(response.status).toBe(200);
  const parsed: unknown = JSON.parse(response.body);
  return Object(Reflect.get(Object(parsed), "response"));
}

export function found(change: Partial<Pod> = {}): LiveRead {
  return { kind: "found", pod: pod("web-0", { uid: "u", resourceVersion: "5", ...change }), sentMs: 0 };
}
