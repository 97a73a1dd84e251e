/**
 * Reviews as JSON, and the handler that answers them: what a pipeline says of them, and what a cell shows, is set by
 * the test.
 */

import { expect } from "vitest";
import type { QuotaFacts } from "../../../shared/decide/quota.ts";
import type { Pod } from "../../../shared/schema/pod.ts";
import { AdmissionHandler, type HandlerOptions } from "../../../webhook/handler.ts";
import type { HttpResponse } from "../../../webhook/http/call.ts";
import type { CellClient, LiveRead } from "../../../webhook/request/cell-client.ts";
import type { Disruption } from "../../../webhook/reserve/pipeline.ts";
import type { Denial, Verdict } from "../../../webhook/reserve/verdict.ts";
import type { AdmissionRecord } from "../../../webhook/respond/admission-response.ts";
import { VirtualTime } from "../runtime/virtual-ports.ts";
import { pod } from "./fixtures.ts";

export type ReviewJson = Readonly<Record<string, unknown>>;

/** The JSON of a Ready pod. */
export function podJson(change: { metadata?: ReviewJson; status?: ReviewJson } = {}): ReviewJson {
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

export function review(request: ReviewJson): string {
  return JSON.stringify({
    apiVersion: "admission.k8s.io/v1",
    kind: "AdmissionReview",
    request: {
      uid: "review-1",
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

export const deletion = (object: ReviewJson = podJson()): string => review({ oldObject: object });

export function eviction(change: ReviewJson = {}, request: ReviewJson = {}): string {
  const object = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name: "web-0" }, ...change };
  return review({ operation: "CREATE", subResource: "eviction", object, ...request });
}

export const denial = (verdict: "Denial" | "Busy", facts: Partial<QuotaFacts> = {}): Denial => ({
  protector: { core: "core", namespace: "default", name: "web" },
  decision: {
    kind: "denied",
    decision: {
      allowed: false,
      kind: verdict,
      cause: verdict === "Denial" ? "AtMinimum" : "Reserved",
      facts: { minAvailable: 8, available: 10, unreliable: 0, reserved: 2, estimated: 8, ...facts },
    },
  },
});

export const ALLOWED: Verdict = { kind: "allowed", decisions: [] };
export const DENIED: Verdict = { kind: "denied", decisions: [denial("Denial")], rollBack: undefined };

export interface ReviewHarness {
  readonly asked: Disruption[];
  readonly records: AdmissionRecord[];
  ask(body: string, kind?: "validate" | "mutate", timeout?: string): Promise<HttpResponse>;
}

/** `live`: what reads of the pod return, one after the other; the last one from then on. */
export function rig(
  verdict: Verdict | Verdict[] = ALLOWED,
  options: Partial<HandlerOptions> = {},
  ...live: LiveRead[]
): ReviewHarness {
  const time = new VirtualTime();
  const asked: Disruption[] = [];
  const records: AdmissionRecord[] = [];
  const verdicts = Array.isArray(verdict) ? [...verdict] : [verdict];
  const cell: CellClient = { id: "cell-1", readPod: readerOf(live) };
  const handler = new AdmissionHandler({
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
    finished: (record) => records.push(record),
    ...options,
  });
  return {
    asked,
    records,
    ask: async (body, kind = "validate", timeout = "10s") =>
      handler.handle({ cell: "cell-1", kind, body, timeout, isCallerGone: () => false }),
  };
}

function readerOf([...live]: LiveRead[]): CellClient["readPod"] {
  const [first] = live;
  if (first === undefined) return undefined;
  return async () => (live.length > 1 ? live.shift() : live[0]) ?? first;
}

export function responseOf(reply: HttpResponse): ReviewJson {
  expect(reply.status).toBe(200);
  const parsed: unknown = JSON.parse(reply.body);
  return Object(Reflect.get(Object(parsed), "response"));
}

export function found(change: Partial<Pod> = {}): LiveRead {
  return { kind: "found", pod: pod("web-0", { uid: "u", resourceVersion: "5", ...change }), sentMs: 0 };
}
