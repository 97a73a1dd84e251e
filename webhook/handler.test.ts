import { describe, expect, test } from "vitest";
import type { AllowReason } from "../shared/decide/quota.ts";
import { ProtectorVersion } from "../shared/decide/state/protector-version.ts";
import { protector } from "../test/support/webhook/fixtures.ts";
import {
  ALLOWED,
  admissionReview,
  CALLER,
  DENIED,
  deletion,
  eviction,
  found,
  handler,
  podJson,
  responseOf,
} from "../test/support/webhook/handler-harness.ts";
import type { User } from "./request/admission-request.ts";
import type { CellClient, LiveRead } from "./request/cell-client.ts";
import type { Disruption } from "./reserve/pipeline.ts";
import type { Allowance } from "./reserve/verdict.ts";

describe("the disruption that protectors decide", () => {
  test("a DELETE: the pod of the admission request, and the time that the call has", async () => {
    const { asked, ask, records } = handler();
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
    expect(records).toMatchObject([{ kind: "delete", outcome: "unprotected", username: "eve", uid: "request-1" }]);
  });

  test("a DELETE of a pod that cannot be read: a pod that is not Ready, of the labels that can be read", async () => {
    const { asked, ask } = handler();
    const status = { phase: "Running", conditions: { Ready: "True" } };
    await ask(admissionReview({ oldObject: { ...podJson(), status } }));
    expect(asked).toMatchObject([{ pod: { uid: "u", labels: { app: "web" }, conditions: [] } }]);
  });

  test("an item of a deletecollection, which has no name", async () => {
    const { asked, ask } = handler();
    await ask(admissionReview({ name: "", oldObject: podJson() }));
    expect(asked).toMatchObject([{ pod: { name: "web-0" } }]);
  });

  test("an eviction: the pod of a live read", async () => {
    const { asked, ask } = handler(ALLOWED, {}, found({ resourceVersion: "77" }));
    await ask(eviction());
    expect(asked).toMatchObject([{ operation: "EVICT", pod: { resourceVersion: "77" }, podReadMs: 0 }]);
  });

  test("an eviction's pod is read again by its UID: another pod of the same name counts as gone", async () => {
    const { asked, ask } = handler(ALLOWED, {}, found());
    await ask(eviction());
    expect(await asked[0]?.reread?.(100)).toMatchObject({ kind: "found" });
    const replaced: LiveRead[] = [found(), found({ uid: "another" })];
    const cell: CellClient = { id: "cell-1", readPod: async () => replaced.shift() ?? { kind: "gone" } };
    const second = handler(ALLOWED, { cells: new Map([["cell-1", cell]]) });
    await second.ask(eviction());
    expect(await second.asked[0]?.reread?.(100)).toEqual({ kind: "gone" });
  });

  test.each<[string, string, Partial<Disruption>]>([
    ["dry run of the request", admissionReview({ oldObject: podJson(), dryRun: true }), { dryRun: true }],
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
    const { asked, ask } = handler(ALLOWED, {}, found({ annotations: podAnnotations(body) }));
    await ask(body);
    expect(asked).toMatchObject([expected]);
  });
});

/** The cell has the pod as the request does. */
function podAnnotations(body: string): Record<string, string> | undefined {
  return JSON.parse(body).request.oldObject?.metadata.annotations;
}

describe("requests that need no protector", () => {
  test.each<[string, string]>([
    ["another resource", admissionReview({ resource: { group: "apps", version: "v1", resource: "deployments" } })],
    ["another operation", admissionReview({ operation: "CONNECT", oldObject: podJson() })],
    ["another subresource", admissionReview({ operation: "CREATE", subResource: "binding", object: {} })],
    ["a terminating pod", deletion(podJson({ metadata: { deletionTimestamp: "2026-01-01T00:00:00Z" } }))],
    ["a finished pod that is Ready", deletion(podJson({ status: { phase: "Succeeded" } }))],
    ["a failed pod", deletion(podJson({ status: { phase: "Failed" } }))],
    ["a pending pod", deletion(podJson({ status: { phase: "Pending" } }))],
    ["a mirror pod", deletion(podJson({ metadata: { annotations: { "kubernetes.io/config.mirror": "x" } } }))],
    [
      "a pod of the project",
      deletion(
        podJson({ metadata: { namespace: "podseidon-system", labels: { "app.kubernetes.io/part-of": "podseidon" } } }),
      ),
    ],
  ])("%s is allowed without asking", async (_name, body) => {
    const { asked, ask } = handler(DENIED);
    expect(responseOf(await ask(body))).toEqual({ uid: "request-1", allowed: true });
    expect(asked).toEqual([]);
  });

  test.each([
    ["a pod of another namespace with the project's label", { labels: { "app.kubernetes.io/part-of": "podseidon" } }],
    ["a pod of the project's namespace without the label", { namespace: "podseidon-system" }],
  ])("%s needs its protectors", async (_name, metadata) => {
    const { asked, ask } = handler();
    await ask(deletion(podJson({ metadata })));
    expect(asked).toHaveLength(1);
  });

  test("the eviction of a pending pod needs its protectors, and is allowed when they cannot decide", async () => {
    const pending = found({ phase: "Pending", conditions: [] });
    const denied = handler(DENIED, {}, pending);
    expect(responseOf(await denied.ask(eviction()))).toMatchObject({ allowed: false });
    const failed = handler({ kind: "failed", tag: "core-unavailable", message: "no core" }, {}, pending);
    expect(responseOf(await failed.ask(eviction()))).toMatchObject({ allowed: true });
  });
});

test("user fields that an authenticator left empty are valid", async () => {
  const asked: [User, string | undefined][] = [];
  const mayBypass: CellClient["mayBypass"] = async (user, _namespace, _timeoutMs, address) => {
    asked.push([user, address]);
    return "allowed";
  };
  const cells = new Map([["cell-1", { id: "cell-1", readPod: undefined, mayBypass }]]);
  const { ask } = handler(ALLOWED, { cells, bypassNeedsPermission: true });
  const annotations = { "podseidon.kubewharf.io/force-delete": "true" };
  const userInfo = { username: "eve", groups: null, extra: { scopes: null, teams: ["a"] } };
  const reply = await ask(admissionReview({ oldObject: podJson({ metadata: { annotations } }), userInfo }));
  expect(responseOf(reply)).toMatchObject({ allowed: true });
  expect(asked).toMatchObject([[{ username: "eve", groups: [], extra: { scopes: [], teams: ["a"] } }, CALLER]]);
});

describe("a malformed AdmissionReview", () => {
  test.each([
    ["not JSON", "{", /not JSON/],
    ["another kind", '{"apiVersion":"v1","kind":"Pod"}', /request: is required/],
    ["another version", admissionReview({}).replace("admission.k8s.io/v1", "admission.k8s.io/v9"), /apiVersion/],
    ["no uid", admissionReview({ uid: "" }), /request\.uid/],
    ["DELETE without oldObject", admissionReview({}), /oldObject/],
    ["oldObject without metadata", admissionReview({ oldObject: { kind: "Pod" } }), /metadata/],
    [
      "an Eviction that is not an object",
      admissionReview({ operation: "CREATE", subResource: "eviction", object: 1 }),
      /Eviction/,
    ],
    ["an Eviction without a name", eviction({ metadata: {} }, { name: "" }), /name/],
  ])("%s", async (_name, body, text) => {
    await expect(handler().ask(body)).rejects.toMatchObject({ status: 400, message: expect.stringMatching(text) });
  });
});

describe("a pod with a pre-activity that no protector covers", () => {
  const waiting = podJson({ metadata: { annotations: { "pre-activity.xpdb.form3.tech/copy": "" } } });

  test("is held back, and its denial names the pre-activity", async () => {
    const { ask, records } = handler(ALLOWED);
    const status = { code: 429, message: expect.stringContaining("waits for the pre-activities of this pod: copy") };
    expect(responseOf(await ask(deletion(waiting)))).toMatchObject({ allowed: false, status });
    expect(records).toMatchObject([{ outcome: "denied" }]);
  });

  test.each<[AllowReason, boolean]>([
    ["NotProtected", false],
    ["NotEnforced", true],
  ])("beside a protector that allows as %s", async (reason, allowed) => {
    const facts = { minAvailable: 8, available: 10, unreliable: 0, notReady: 0, reserved: 2, estimated: 8 };
    const decision = { allowed: true, reason, write: "none", facts } as const;
    const version = new ProtectorVersion(protector(1), 0);
    const allowance: Allowance = {
      protector: { core: "core", namespace: "default", name: "web" },
      decision: { kind: "allowed", decision, version, written: false },
    };
    const { ask } = handler({ kind: "allowed", decisions: [allowance] });
    expect(responseOf(await ask(deletion(waiting)))).toMatchObject({ allowed });
  });

  test("is told of by a warning in dry-run mode", async () => {
    const { ask } = handler(ALLOWED, { dryRunMode: true });
    const warnings = [expect.stringContaining("pre-activities")];
    expect(responseOf(await ask(deletion(waiting)))).toMatchObject({ allowed: true, warnings });
  });
});
