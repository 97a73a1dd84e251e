import { describe, expect, test } from "vitest";
import type { Pod } from "../shared/schema/pod.ts";
import type { PodProtectorSpec } from "../shared/schema/podprotector.ts";
import { noncesOf, protector } from "../test/support/webhook/fixtures.ts";
import {
  ALLOWED,
  DENIED,
  deletion,
  eviction,
  found,
  handler,
  type JsonObject,
  responseOf,
} from "../test/support/webhook/handler-harness.ts";
import { world } from "../test/support/webhook/pipeline-harness.ts";
import type { LiveRead } from "./request/cell-client.ts";
import type { Verdict } from "./reserve/verdict.ts";

describe("the eviction of a pending pod that cannot be pinned", () => {
  const pending = found({ phase: "Pending", conditions: [] });
  test.each<[string, LiveRead, JsonObject | number]>([
    ["is allowed while the pod is pending", pending, { allowed: true }],
    ["fails when the pod runs by now", found(), 500],
    ["fails when the pod cannot be read again", { kind: "failed", message: "no route" }, 500],
    ["is not found when the pod is gone", { kind: "gone" }, { allowed: false, status: { code: 404 } }],
  ])("%s", async (_name, then, expected) => {
    const { asked, ask } = handler({ kind: "failed", tag: "core-unavailable", message: "no core" }, {}, pending, then);
    const reply = await ask(eviction());
    if (typeof expected === "number") expect(reply.status).toBe(expected);
    else expect(responseOf(reply)).toMatchObject(expected);
    // The rest of the time is for the live read.
    expect(asked[0]?.deadlineMs).toBe(3_000);
  });
});

/** A pipeline over one protector that has no pod to spare, and the UIDs of the pods that it has recorded. */
function stored(spec: Partial<PodProtectorSpec>) {
  const { decide, stores } = world([{ core: "core", object: protector(10, { spec }) }]);
  const recorded = () => [...stores.values()].flatMap(({ object }) => [...noncesOf(object).keys()]);
  return { pipeline: { decide }, recorded };
}

describe("evictions that need no protector", () => {
  test.each<[string, string, LiveRead | undefined, JsonObject | number]>([
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
    ["the cell does not answer", eviction(), { kind: "failed", message: "no route" }, 500],
    ["the cell has no kubeconfig", eviction(), undefined, 500],
  ])("%s", async (_name, body, live, expected) => {
    const { asked, ask } = handler(DENIED, {}, ...(live === undefined ? [] : [live]));
    const reply = await ask(body);
    if (typeof expected === "number") expect(reply.status).toBe(expected);
    else expect(responseOf(reply)).toMatchObject({ allowed: false, status: expected });
    expect(asked).toEqual([]);
  });

  test("an eviction without the UID precondition is denied where it is required", async () => {
    const { asked, ask } = handler([DENIED, ALLOWED], { requireBoundEvictions: true }, found());
    const response = responseOf(await ask(eviction()));
    expect(response).toMatchObject({ allowed: false, status: { code: 429 } });
    expect(JSON.stringify(response)).toContain("UnboundEviction");
    const bound = eviction({ deleteOptions: { preconditions: { uid: "u" } } });
    expect(responseOf(await ask(bound))).toMatchObject({ allowed: true });
    // Nothing is reserved for the one that is denied.
    expect(asked.map(({ dryRun }) => dryRun)).toEqual([true, false]);
  });

  test.each<[string, Partial<Pod>]>([
    ["has ended", { phase: "Failed" }],
    ["is Pending", { phase: "Pending" }],
  ])("the same of a pod that %s: a needed pod may have taken its name", async (_, change) => {
    const { ask } = handler(DENIED, { requireBoundEvictions: true }, found(change));
    expect(JSON.stringify(responseOf(await ask(eviction())))).toContain("UnboundEviction");
  });

  test.each<[string, Partial<PodProtectorSpec>, string, boolean]>([
    ["only warns", { enforcement: "Warn" }, "dryRunDenied", true],
    ["asks for no evictions", { protectedOperations: ["DELETE"] }, "allowed", false],
  ])("such an eviction is allowed by a protector that %s, with its record", async (_, spec, outcome, isRecorded) => {
    const { pipeline, recorded } = stored(spec);
    const { ask, records } = handler(ALLOWED, { requireBoundEvictions: true, pipeline }, found());
    expect(responseOf(await ask(eviction()))).toMatchObject({ allowed: true });
    expect(records).toMatchObject([{ outcome }]);
    expect(recorded()).toEqual(isRecorded ? ["u"] : []);
    expect(responseOf(await ask(eviction({}, { dryRun: true })))).toMatchObject({ allowed: true });
  });

  test.each<[string, Partial<PodProtectorSpec>]>([
    ["is suspended", { suspend: { enabled: true } }],
    ["promises nothing", { minAvailable: 0 }],
  ])("such an eviction is denied by a protector that %s, which may end before the pod is gone", async (_, spec) => {
    const { pipeline, recorded } = stored(spec);
    const { ask } = handler(ALLOWED, { requireBoundEvictions: true, pipeline }, found());
    expect(responseOf(await ask(eviction()))).toMatchObject({ allowed: false, status: { code: 429 } });
    expect(recorded()).toEqual([]);
  });

  test.each([
    [{}, ["u"]],
    [{ dryRun: true }, []],
  ])("in dry-run mode, such an eviction is told, allowed and recorded: %j", async (request, expected) => {
    const { pipeline, recorded } = stored({});
    const options = { requireBoundEvictions: true, dryRunMode: true, pipeline };
    const { ask } = handler(ALLOWED, options, found());
    const response = responseOf(await ask(eviction({}, request)));
    expect(response).toMatchObject({ allowed: true, auditAnnotations: { "dry-run": "true" } });
    expect(String(response.warnings)).toContain("not bound to the pod's UID");
    expect(recorded()).toEqual(expected);
  });

  test("where no protector covers the pod, such an eviction is allowed, and fails where nobody can tell", async () => {
    const failed: Verdict = { kind: "failed", tag: "core-unavailable", message: "no answer" };
    const { ask } = handler([ALLOWED, ALLOWED, failed], { requireBoundEvictions: true }, found());
    expect(responseOf(await ask(eviction()))).toMatchObject({ allowed: true });
    expect((await ask(eviction())).status).toBe(500);
  });
});

describe("binding an eviction to its pod", () => {
  test.each<[JsonObject, string, unknown]>([
    [{}, "/deleteOptions", { preconditions: { uid: "u" } }],
    [{ deleteOptions: null }, "/deleteOptions", { preconditions: { uid: "u" } }],
    [{ deleteOptions: {} }, "/deleteOptions/preconditions", { uid: "u" }],
    [{ deleteOptions: { preconditions: null } }, "/deleteOptions/preconditions", { uid: "u" }],
    // The version of the caller stays.
    [{ deleteOptions: { preconditions: { resourceVersion: "7" } } }, "/deleteOptions/preconditions/uid", "u"],
  ])("adds the UID, whatever part of the path is there: %j", async (change, path, value) => {
    const { ask, records } = handler(ALLOWED, {}, found());
    const response = responseOf(await ask(eviction(change), "mutate"));
    expect(response).toMatchObject({ allowed: true, patchType: "JSONPatch" });
    expect(JSON.parse(Buffer.from(String(response.patch), "base64").toString())).toEqual([{ op: "add", path, value }]);
    expect(records).toMatchObject([{ kind: "bind", outcome: "bound" }]);
  });

  test.each<[string, string]>([
    ["an eviction with a UID precondition", eviction({ deleteOptions: { preconditions: { uid: "other" } } })],
    ["another request", deletion()],
  ])("%s passes unchanged", async (_name, body) => {
    const { ask } = handler(ALLOWED, {}, found());
    expect(responseOf(await ask(body, "mutate"))).toEqual({ uid: "request-1", allowed: true });
  });

  test("a missing pod is not found", async () => {
    const { ask } = handler(ALLOWED, {}, { kind: "gone" });
    expect(responseOf(await ask(eviction(), "mutate"))).toMatchObject({ allowed: false, status: { code: 404 } });
  });
});
