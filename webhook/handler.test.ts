import { describe, expect, test } from "vitest";
import type { Pod } from "../shared/schema/pod.ts";
import { VirtualTime } from "../test/support/virtual-ports.ts";
import type { Cell } from "./cells.ts";
import { pod } from "./fixtures.ts";
import { type HandlerOptions, ReviewHandler, type ReviewRecord } from "./handler.ts";
import type { Disruption, Verdict } from "./pipeline.ts";
import type { Blocker } from "./refusal.ts";
import type { Reply } from "./server.ts";
import type { LiveRead } from "./work.ts";

type Json = Readonly<Record<string, unknown>>;

/** The JSON of a Ready pod. */
function podJson(change: { metadata?: Json; status?: Json } = {}): Json {
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

function review(request: Json): string {
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

const deletion = (object: Json = podJson()): string => review({ oldObject: object });

function eviction(change: Json = {}, request: Json = {}): string {
  const object = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name: "web-0" }, ...change };
  return review({ operation: "CREATE", subResource: "eviction", object, ...request });
}

const blocker = (verdict: "Denial" | "Busy"): Blocker => ({
  core: "core",
  namespace: "default",
  name: "web",
  why: {
    kind: "quota",
    decision: {
      allowed: false,
      verdict,
      cause: verdict === "Denial" ? "AtMinimum" : "Reserved",
      facts: { minAvailable: 8, available: 10, reserved: 2, estimated: 8 },
    },
  },
});

const ALLOWED: Verdict = { kind: "allowed", judgements: [] };
const DENIED: Verdict = { kind: "refused", blockers: [blocker("Denial")], rollBack: undefined };

interface Rig {
  readonly asked: Disruption[];
  readonly records: ReviewRecord[];
  ask(body: string, kind?: "validate" | "mutate", timeout?: string): Promise<Reply>;
}

/** `live`: what reads of the pod return, one after the other; the last one from then on. */
function rig(verdict: Verdict | Verdict[] = ALLOWED, options: Partial<HandlerOptions> = {}, ...live: LiveRead[]): Rig {
  const time = new VirtualTime();
  const asked: Disruption[] = [];
  const records: ReviewRecord[] = [];
  const verdicts = Array.isArray(verdict) ? [...verdict] : [verdict];
  const cell: Cell = { id: "cell-1", readPod: readerOf(live) };
  const handler = new ReviewHandler({
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
      handler.handle({ cell: "cell-1", kind, body, timeout, gone: () => false }),
  };
}

function readerOf([...live]: LiveRead[]): Cell["readPod"] {
  const [first] = live;
  if (first === undefined) return undefined;
  return async () => (live.length > 1 ? live.shift() : live[0]) ?? first;
}

function responseOf(reply: Reply): Json {
  expect(reply.status).toBe(200);
  const parsed: unknown = JSON.parse(reply.body);
  return Object(Reflect.get(Object(parsed), "response"));
}

function found(change: Partial<Pod> = {}): LiveRead {
  return { kind: "found", pod: pod("web-0", { uid: "u", resourceVersion: "5", ...change }), sentMs: 0 };
}

describe("changes in place", () => {
  const withImage = (image: string, change: { metadata?: Json } = {}): Json => ({
    ...podJson(change),
    spec: { containers: [{ name: "app", image }] },
  });
  const change = (request: Json): string =>
    review({ operation: "UPDATE", oldObject: withImage("app:1"), object: withImage("app:2"), ...request });

  test.each<[string, Json]>([
    ["of the spec", {}],
    ["of the resources", { subResource: "resize" }],
  ])("%s are disruptions when they restart a container", async (_, request) => {
    const { asked, records, ask } = rig();
    await ask(change(request));
    expect(asked).toMatchObject([{ operation: "UPDATE", pod: { uid: "u", resourceVersion: "5" }, dryRun: false }]);
    expect(records).toMatchObject([{ kind: "change" }]);
  });

  test("are free when they restart nothing, and ask nobody", async () => {
    const { asked, records, ask } = rig();
    const labelled = withImage("app:1", { metadata: { labels: { app: "other" } } });
    expect(responseOf(await ask(change({ object: labelled })))).toMatchObject({ allowed: true });
    expect(asked).toEqual([]);
    expect(records).toMatchObject([{ kind: "change", outcome: "restartsNothing" }]);
  });

  test("of a pending pod are pinned, of another subresource ignored", async () => {
    const pending = { ...withImage("app:1"), status: { phase: "Pending" } };
    const { asked, records, ask } = rig();
    await ask(change({ oldObject: pending }));
    expect(asked).toHaveLength(1);
    await ask(change({ subResource: "status" }));
    expect(records.at(-1)).toMatchObject({ kind: "other", outcome: "ignored" });
  });

  test("without one of the objects are malformed", async () => {
    const { ask } = rig();
    await expect(ask(change({ object: undefined }))).rejects.toThrow("carries no request.object");
    await expect(ask(change({ oldObject: null }))).rejects.toThrow("carries no request.oldObject");
  });
});

describe("what is asked of the protectors", () => {
  test("a DELETE: the pod as it was reviewed, with the time that the call has", async () => {
    const { asked, ask, records } = rig();
    await ask(deletion(), "validate", "5s");
    expect(asked).toMatchObject([
      {
        cell: "cell-1",
        operation: "DELETE",
        pod: { uid: "u", resourceVersion: "5" },
        dryRun: false,
        deadlineMs: 4_500,
      },
    ]);
    expect(records).toMatchObject([{ kind: "delete", outcome: "unprotected", username: "eve", uid: "review-1" }]);
  });

  test("an item of a deletecollection has no name of its own", async () => {
    const { asked, ask } = rig();
    await ask(review({ name: "", oldObject: podJson() }));
    expect(asked).toMatchObject([{ pod: { name: "web-0" } }]);
  });

  test("an eviction: the pod as it is read live", async () => {
    const { asked, ask } = rig(ALLOWED, {}, found({ resourceVersion: "77" }));
    await ask(eviction());
    expect(asked).toMatchObject([{ operation: "EVICT", pod: { resourceVersion: "77" }, podReadMs: 0 }]);
  });

  test("an eviction's pod is read again as the same pod: another of its name is none", async () => {
    const { asked, ask } = rig(ALLOWED, {}, found());
    await ask(eviction());
    expect(await asked[0]?.reread?.(100)).toMatchObject({ kind: "found" });
    const replaced: LiveRead[] = [found(), found({ uid: "another" })];
    const cell: Cell = { id: "cell-1", readPod: async () => replaced.shift() ?? { kind: "gone" } };
    const second = rig(ALLOWED, { cells: new Map([["cell-1", cell]]) });
    await second.ask(eviction());
    expect(await second.asked[0]?.reread?.(100)).toEqual({ kind: "gone" });
  });

  test.each<[string, string, Partial<Disruption>]>([
    ["dry run of the request", review({ oldObject: podJson(), dryRun: true }), { dryRun: true }],
    ["dry run of the eviction", eviction({ deleteOptions: { dryRun: ["All"] } }), { dryRun: true }],
    [
      "force-delete",
      deletion(podJson({ metadata: { annotations: { "podseidon.kubewharf.io/force-delete": "" } } })),
      { forced: true },
    ],
    [
      "force-delete with a reserved value",
      deletion(podJson({ metadata: { annotations: { "podseidon.kubewharf.io/force-delete": "{}" } } })),
      { forced: false },
    ],
    [
      "health-criterion of the pod",
      deletion(podJson({ metadata: { annotations: { "podseidon.kubewharf.io/health-criterion": "Running" } } })),
      { criterion: "Running" },
    ],
    [
      "health-criterion of the eviction",
      eviction({
        metadata: { name: "web-0", annotations: { "podseidon.kubewharf.io/health-criterion": "Scheduled" } },
      }),
      { criterion: "Scheduled" },
    ],
    [
      "an unknown health-criterion",
      deletion(podJson({ metadata: { annotations: { "podseidon.kubewharf.io/health-criterion": "ready" } } })),
      { criterion: "Available" },
    ],
  ])("%s", async (_name, body, expected) => {
    const { asked, ask } = rig(ALLOWED, {}, found());
    await ask(body);
    expect(asked).toMatchObject([expected]);
  });
});

describe("what needs no protector", () => {
  test.each<[string, string]>([
    ["another resource", review({ resource: { group: "apps", version: "v1", resource: "deployments" } })],
    ["another operation", review({ operation: "CONNECT", oldObject: podJson() })],
    ["another subresource", review({ operation: "CREATE", subResource: "binding", object: {} })],
    ["a terminating pod", deletion(podJson({ metadata: { deletionTimestamp: "2026-01-01T00:00:00Z" } }))],
    ["a finished pod that is Ready", deletion(podJson({ status: { phase: "Succeeded" } }))],
    ["a failed pod", deletion(podJson({ status: { phase: "Failed" } }))],
    ["a pending pod", deletion(podJson({ status: { phase: "Pending" } }))],
    ["a mirror pod", deletion(podJson({ metadata: { annotations: { "kubernetes.io/config.mirror": "x" } } }))],
    [
      "an own pod",
      deletion(
        podJson({ metadata: { namespace: "podseidon-system", labels: { "app.kubernetes.io/part-of": "podseidon" } } }),
      ),
    ],
  ])("%s is allowed without asking", async (_name, body) => {
    const { asked, ask } = rig(DENIED);
    expect(responseOf(await ask(body))).toEqual({ uid: "review-1", allowed: true });
    expect(asked).toEqual([]);
  });

  test.each([
    ["a pod of another namespace with the project's label", { labels: { "app.kubernetes.io/part-of": "podseidon" } }],
    ["a pod of the project's namespace without it", { namespace: "podseidon-system" }],
  ])("%s is asked for", async (_name, metadata) => {
    const { asked, ask } = rig();
    await ask(deletion(podJson({ metadata })));
    expect(asked).toHaveLength(1);
  });

  test("the eviction of a pending pod is asked for, and allowed when nobody can answer", async () => {
    const pending = found({ phase: "Pending", conditions: [] });
    const denied = rig(DENIED, {}, pending);
    expect(responseOf(await denied.ask(eviction()))).toMatchObject({ allowed: false });
    const failed = rig({ kind: "failed", tag: "core-unavailable", message: "no core" }, {}, pending);
    expect(responseOf(await failed.ask(eviction()))).toMatchObject({ allowed: true });
  });
});

describe("a pending pod that nobody can pin", () => {
  const pending = found({ phase: "Pending", conditions: [] });
  test.each<[string, LiveRead, Json | number]>([
    ["goes while it is pending", pending, { allowed: true }],
    ["is decided on anew when it runs by now", found(), 503],
    ["is not let go when nobody knows what it is by now", { kind: "failed", message: "no route" }, 503],
    ["is not found when it is gone", { kind: "gone" }, { allowed: false, status: { code: 404 } }],
  ])("%s", async (_name, then, expected) => {
    const { asked, ask } = rig({ kind: "failed", tag: "core-unavailable", message: "no core" }, {}, pending, then);
    const reply = await ask(eviction());
    if (typeof expected === "number") expect(reply.status).toBe(expected);
    else expect(responseOf(reply)).toMatchObject(expected);
    // So that there is time left to look.
    expect(asked[0]?.deadlineMs).toBe(3_000);
  });
});

describe("evictions that are answered without a protector", () => {
  test.each<[string, string, LiveRead | undefined, Json | number]>([
    ["no such pod", eviction(), { kind: "gone" }, { code: 404, reason: "NotFound" }],
    [
      "another UID",
      eviction({ deleteOptions: { preconditions: { uid: "another" } } }),
      found(),
      { code: 409, reason: "Conflict" },
    ],
    [
      "another version",
      eviction({ deleteOptions: { preconditions: { resourceVersion: "1" } } }),
      found(),
      { code: 409, reason: "Conflict" },
    ],
    ["the cell does not answer", eviction(), { kind: "failed", message: "no route" }, 503],
    ["the cell has no kubeconfig", eviction(), undefined, 503],
  ])("%s", async (_name, body, live, expected) => {
    const { asked, ask } = rig(DENIED, {}, ...(live === undefined ? [] : [live]));
    const reply = await ask(body);
    if (typeof expected === "number") expect(reply.status).toBe(expected);
    else expect(responseOf(reply)).toMatchObject({ allowed: false, status: expected });
    expect(asked).toEqual([]);
  });

  test("unbound where it has to be bound", async () => {
    const { ask } = rig(ALLOWED, { requireBoundEvictions: true }, found());
    expect(responseOf(await ask(eviction()))).toMatchObject({ allowed: false, status: { code: 429 } });
    const bound = eviction({ deleteOptions: { preconditions: { uid: "u" } } });
    expect(responseOf(await ask(bound))).toMatchObject({ allowed: true });
  });
});

describe("answers", () => {
  test("a denial: 429, every cause, no time to try again", async () => {
    const { ask, records } = rig(DENIED);
    expect(responseOf(await ask(deletion()))).toEqual({
      uid: "review-1",
      allowed: false,
      status: {
        code: 429,
        reason: "TooManyRequests",
        message:
          "pod default/web-0 may not be deleted now: PodProtector default/web (core core) needs 8 available pods, 10 are available, 2 of them reserved by disruptions under way: its capacity is at the minimum; try again when more pods are available",
        details: {
          name: "web-0",
          kind: "pods",
          causes: [
            {
              reason: "DisruptionBudget",
              message: expect.stringContaining("needs 8 available pods"),
              field: "podprotectors.podseidon.kubewharf.io/default/web",
            },
          ],
        },
      },
      auditAnnotations: {
        "reject-by-podprotector": "default/web",
        decision: "core/default/web=AtMinimum",
        review: "review-1",
      },
    });
    expect(records).toMatchObject([{ outcome: "denied" }]);
  });

  test.each([
    ["all busy", [blocker("Busy"), blocker("Busy")], 1, "busy"],
    ["one denies", [blocker("Busy"), blocker("Denial")], undefined, "denied"],
  ])("%s", async (_name, blockers, retryAfterSeconds, outcome) => {
    const { ask, records } = rig({ kind: "refused", blockers, rollBack: undefined });
    const response = responseOf(await ask(deletion()));
    expect(response).toMatchObject({ status: { details: { causes: [{}, {}] } } });
    expect(Reflect.get(Object(Reflect.get(Object(response.status), "details")), "retryAfterSeconds")).toBe(
      retryAfterSeconds,
    );
    expect(records).toMatchObject([{ outcome }]);
  });

  test.each([
    ["core-unavailable", 503],
    ["core-rejected", 500],
    ["deadline", 504],
    ["defect", 500],
  ] as const)("%s is an HTTP error, so that failurePolicy decides", async (tag, status) => {
    const { ask, records } = rig({ kind: "failed", tag, message: "said why" });
    expect(await ask(deletion())).toEqual({ status, body: "said why" });
    expect(records).toMatchObject([{ outcome: "failed", failure: tag }]);
  });

  test.each([
    ["delivered: taken back", true, 1],
    ["not delivered: stays", false, 0],
  ])("what was reserved before a refusal that was %s", async (_name, complete, times) => {
    let rolledBack = 0;
    const { ask } = rig({
      kind: "refused",
      blockers: [blocker("Busy")],
      rollBack: () => {
        rolledBack++;
      },
    });
    const reply = await ask(deletion());
    expect(rolledBack).toBe(0);
    reply.delivered?.(complete);
    expect(rolledBack).toBe(times);
  });
});

describe("dry-run mode", () => {
  const dryRunMode = { dryRunMode: true };

  test("a refusal becomes a warning, and the deletion is recorded", async () => {
    const { ask, asked, records } = rig([DENIED, ALLOWED], dryRunMode);
    expect(responseOf(await ask(deletion()))).toMatchObject({
      allowed: true,
      warnings: [expect.stringMatching(/^dry run: pod default\/web-0 may not be deleted now/)],
      auditAnnotations: { "dry-run": "true", "reject-by-podprotector": "default/web" },
    });
    expect(asked).toMatchObject([{ forced: false }, { forced: true }]);
    expect(records).toMatchObject([{ outcome: "dryRunDenied" }]);
  });

  test("a dry run of the request is not recorded there either", async () => {
    const { ask, asked } = rig(DENIED, dryRunMode);
    await ask(review({ oldObject: podJson(), dryRun: true }));
    expect(asked).toHaveLength(1);
  });

  test("an error becomes a warning", async () => {
    const { ask } = rig({ kind: "failed", tag: "core-unavailable", message: "no core" }, dryRunMode);
    expect(responseOf(await ask(deletion()))).toMatchObject({ allowed: true, warnings: ["dry run: no core"] });
  });

  test("what does not exist is still not found", async () => {
    const { ask } = rig(ALLOWED, dryRunMode, { kind: "gone" });
    expect(responseOf(await ask(eviction()))).toMatchObject({ allowed: false, status: { code: 404 } });
  });
});

describe("binding an eviction to its pod", () => {
  test("adds the UID, whatever part of the path is there", async () => {
    const { ask, records } = rig(ALLOWED, {}, found());
    const response = responseOf(await ask(eviction({ deleteOptions: {} }), "mutate"));
    expect(response).toMatchObject({ allowed: true, patchType: "JSONPatch" });
    expect(JSON.parse(Buffer.from(String(response.patch), "base64").toString())).toEqual([
      { op: "add", path: "/deleteOptions/preconditions", value: { uid: "u" } },
    ]);
    expect(records).toMatchObject([{ kind: "bind", outcome: "bound" }]);
  });

  test.each<[string, string]>([
    ["bound already", eviction({ deleteOptions: { preconditions: { uid: "other" } } })],
    ["no eviction", deletion()],
  ])("%s: as it is", async (_name, body) => {
    const { ask } = rig(ALLOWED, {}, found());
    expect(responseOf(await ask(body, "mutate"))).toEqual({ uid: "review-1", allowed: true });
  });

  test("a pod that is not there", async () => {
    const { ask } = rig(ALLOWED, {}, { kind: "gone" });
    expect(responseOf(await ask(eviction(), "mutate"))).toMatchObject({ allowed: false, status: { code: 404 } });
  });
});

describe("a review that is none", () => {
  test.each([
    ["no JSON", "{", /not JSON/],
    ["another kind", '{"apiVersion":"v1","kind":"Pod"}', /request: is required/],
    ["another version", review({}).replace("admission.k8s.io/v1", "admission.k8s.io/v9"), /apiVersion/],
    ["no uid", review({ uid: "" }), /request\.uid/],
    ["DELETE without oldObject", review({}), /oldObject/],
    ["oldObject that is no pod", review({ oldObject: { kind: "Pod" } }), /metadata/],
    ["an eviction that is none", review({ operation: "CREATE", subResource: "eviction", object: 1 }), /Eviction/],
    ["an eviction of nobody", eviction({ metadata: {} }, { name: "" }), /name/],
  ])("%s", async (_name, body, text) => {
    await expect(rig().ask(body)).rejects.toMatchObject({ status: 400, message: expect.stringMatching(text) });
  });
});
