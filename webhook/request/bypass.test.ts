import { describe, expect, test } from "vitest";
import { readClaim } from "../../shared/decide/bypass-claim.ts";
import type { ApiResult } from "../../shared/kube/client/api-result.ts";
import { FORCE_DELETE_ANNOTATION, NO_PROTECT_ANNOTATION } from "../../shared/schema/annotations.ts";
import type { Pod } from "../../shared/schema/pod.ts";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { pod } from "../../test/support/webhook/fixtures.ts";
import type { User } from "./admission-request.ts";
import { type BypassContext, checkBypass } from "./bypass.ts";
import { BypassPermissions, REMEMBERED_MS } from "./bypass-permission.ts";
import type { LiveRead } from "./cell-client.ts";
import { claimsBypass } from "./exemption.ts";

const USER: User = { username: "eve", uid: "7", groups: ["ops"], extra: { scopes: ["a"] } };
const NOW_MS = Date.parse("2026-05-01T12:00:00Z");

function context(change: Partial<BypassContext> = {}): BypassContext {
  return {
    user: USER,
    cell: { id: "cell-1", readPod: undefined },
    nowMs: NOW_MS,
    timeoutMs: 1_000,
    needsPermission: false,
    isLive: true,
    ...change,
  };
}

async function judged(value: string, change: Partial<BypassContext> = {}): Promise<string> {
  const verdict = await checkBypass(
    pod("web-0", { annotations: { [FORCE_DELETE_ANNOTATION]: value } }),
    context(change),
  );
  return verdict.forced ? `forced ${JSON.stringify(verdict.auditAnnotations)}` : (verdict.ignored ?? "nothing");
}

describe("OpenKruise's annotation no-protect", () => {
  const asked = async (annotations: Record<string, string>, change: Partial<BypassContext> = {}): Promise<string> => {
    const verdict = await checkBypass(pod("web-0", { annotations }), context(change));
    return verdict.forced ? "forced" : verdict.noProtect === true ? "noProtect" : (verdict.ignored ?? "nothing");
  };
  const gone = { id: "cell-1", readPod: () => Promise.resolve({ kind: "gone" as const }) };
  test.each<[string, Record<string, string>, Partial<BypassContext>, string]>([
    ["is followed", { [NO_PROTECT_ANNOTATION]: "true" }, {}, "noProtect"],
    ["gives way to force-delete", { [NO_PROTECT_ANNOTATION]: "true", [FORCE_DELETE_ANNOTATION]: "" }, {}, "forced"],
    [
      "is followed beside a force-delete that has expired",
      { [NO_PROTECT_ANNOTATION]: "true", [FORCE_DELETE_ANNOTATION]: '{"until":"2026-05-01T11:00:00Z"}' },
      {},
      "noProtect",
    ],
    [
      "is followed beside a force-delete that can't be read",
      { [NO_PROTECT_ANNOTATION]: "true", [FORCE_DELETE_ANNOTATION]: "{}" },
      {},
      "noProtect",
    ],
    [
      "needs the permission beside it, too",
      { [NO_PROTECT_ANNOTATION]: "true", [FORCE_DELETE_ANNOTATION]: "{}" },
      { needsPermission: true },
      "unchecked",
    ],
    ["needs the permission", { [NO_PROTECT_ANNOTATION]: "true" }, { needsPermission: true }, "unchecked"],
    ["is to be on the pod", { [NO_PROTECT_ANNOTATION]: "true" }, { isLive: false, cell: gone }, "unconfirmed"],
  ])("%s", async (_, annotations, change, expected) => {
    expect(await asked(annotations, change)).toBe(expected);
  });

  test.each([
    ["true", true],
    ["false", false],
    ["", false],
  ])("%j is a claim: %s", (value, expected) => {
    expect(claimsBypass(pod("web-0", { annotations: { [NO_PROTECT_ANNOTATION]: value } }))).toBe(expected);
  });
});

describe("the force-delete annotation", () => {
  test.each<[string, string]>([
    ["", 'forced {"force-delete":"true"}'],
    ["true", 'forced {"force-delete":"true"}'],
    ["[1]", 'forced {"force-delete":"true"}'],
    ["{}", "malformed"],
    ['{"reason":"stuck"}', 'forced {"force-delete":"true","force-delete-reason":"stuck"}'],
    [
      '{"until":"2026-05-01T12:00:01Z","reason":"x"}',
      'forced {"force-delete":"true","force-delete-until":"2026-05-01T12:00:01Z","force-delete-reason":"x"}',
    ],
    [
      '{"until":"2026-05-01T14:00:01+02:00"}',
      'forced {"force-delete":"true","force-delete-until":"2026-05-01T14:00:01+02:00"}',
    ],
    ['{"until":"2026-05-01T12:00:00Z"}', "expired"],
    ['{"until":"2026-05-01"}', "malformed"],
    ['{"until":"soon"}', "malformed"],
    [
      '{"until":"2028-02-29T00:00:00.5+02:00"}',
      'forced {"force-delete":"true","force-delete-until":"2028-02-29T00:00:00.5+02:00"}',
    ],
    ['{"until":5}', "malformed"],
    ['{"until":null}', "malformed"],
    ['{"untill":"2030-05-01T12:00:00Z"}', "malformed"],
    // What it misspells may have meant less.
    ['{"reason":"stuck","untill":"2026-05-01T12:00:01Z"}', "malformed"],
    ["{", "malformed"],
    ['\n  {"until":"2026-05-01T12:00:00Z"}', "expired"],
    ["\ufeff{}", "malformed"],
  ])("%s: %s", async (value, expected) => {
    expect(await judged(value)).toBe(expected);
  });

  test.each(["2026-06-31T12:00:00Z", "2027-02-29T12:00:00Z", "2026-06-30T24:00:00Z", "2026-06-30T12:00:00+24:00"])(
    "until a time that is in no calendar (%s) is malformed",
    async (until) => expect(await judged(JSON.stringify({ until }))).toBe("malformed"),
  );

  test("until a time of more digits than nanoseconds is malformed, because responses repeat it", async () => {
    const until = (digits: string) => JSON.stringify({ until: `2030-05-01T12:00:00.${digits}Z` });
    expect(await judged(until("123456789"))).toMatch(/^forced/);
    expect(await judged(until("0".repeat(100_000)))).toBe("malformed");
  });

  test("of a length that no apiserver stores is malformed, and not read", async () => {
    expect(readClaim(JSON.stringify({ reason: "x".repeat(200_000) }))).toMatchObject({ kind: "claimed" });
    expect(readClaim(JSON.stringify({ reason: "x".repeat(300_000) }))).toEqual({ kind: "malformed" });
  });

  test("a pod without it is not forced", async () => {
    expect(readClaim(undefined)).toEqual({ kind: "none" });
    expect((await checkBypass(pod("web-0"), context())).forced).toBe(false);
  });

  test.each<["allowed" | "denied" | "unknown", string]>([
    ["allowed", 'forced {"force-delete":"true"}'],
    ["denied", "forbidden"],
    ["unknown", "unchecked"],
  ])("where a permission is needed, and it is %s: %s", async (answer, expected) => {
    const cell = { id: "cell-1", readPod: undefined, mayBypass: async () => answer };
    expect(await judged("true", { needsPermission: true, cell })).toBe(expected);
  });

  test("where a permission is needed, a cell that can't be asked leaves it unchecked", async () => {
    expect(await judged("true", { needsPermission: true })).toBe("unchecked");
  });
});

describe("a pod that came with the request", () => {
  const ANNOTATED = { annotations: { [FORCE_DELETE_ANNOTATION]: "true" } };
  const reading = (live: LiveRead): Partial<BypassContext> => ({
    isLive: false,
    cell: { id: "cell-1", readPod: async () => live },
  });
  const found = (change: Partial<Pod>): LiveRead => ({ kind: "found", pod: pod("web-0", change), sentMs: 0 });

  test.each<[string, Partial<BypassContext>, string]>([
    ["as the cell has it", reading(found(ANNOTATED)), 'forced {"force-delete":"true"}'],
    ["with an annotation of its own", reading(found({})), "unconfirmed"],
    ["of another UID", reading(found({ ...ANNOTATED, uid: "other" })), "unconfirmed"],
    ["that is not there", reading({ kind: "gone" }), "unconfirmed"],
    ["that can't be read", reading({ kind: "failed", message: "no answer" }), "unconfirmed"],
    ["of a cell without a kubeconfig", { isLive: false }, "unconfirmed"],
  ])("%s", async (_, change, expected) => {
    expect(await judged("true", change)).toBe(expected);
  });
});

describe("the permission", () => {
  function harness(
    answer: () => ApiResult<unknown>,
    afterMs = 5,
  ): { time: VirtualTime; permissions: BypassPermissions; asked: unknown[] } {
    const time = new VirtualTime();
    const asked: unknown[] = [];
    const permissions = new BypassPermissions(
      {
        create: async (_, body, parse) => {
          asked.push(body);
          await new Promise<void>((resolve) => time.timers.after(afterMs, resolve));
          const result = answer();
          return result.kind === "ok" ? { kind: "ok", object: parse(result.object) } : result;
        },
      },
      time,
    );
    return { time, permissions, asked };
  }

  const allowed = (): ApiResult<unknown> => ({ kind: "ok", object: { status: { allowed: true } } });

  test("is asked of the cell with the whole identity, once for concurrent requests, and soon forgotten", async () => {
    const { time, permissions, asked } = harness(allowed);
    const both = Promise.all([permissions.mayBypass(USER, "shop", 500), permissions.mayBypass(USER, "shop", 500)]);
    await time.advance(5);
    expect(await both).toEqual(["allowed", "allowed"]);
    expect(asked).toEqual([
      {
        apiVersion: "authorization.k8s.io/v1",
        kind: "SubjectAccessReview",
        spec: {
          user: "eve",
          uid: "7",
          groups: ["ops"],
          extra: { scopes: ["a"] },
          resourceAttributes: {
            group: "podseidon.kubewharf.io",
            resource: "podprotectors",
            verb: "bypass",
            namespace: "shop",
          },
        },
      },
    ]);
    expect(await permissions.mayBypass(USER, "shop", 500)).toBe("allowed");
    expect(asked).toHaveLength(1);
    await time.advance(REMEMBERED_MS);
    const again = permissions.mayBypass(USER, "shop", 500);
    await time.advance(5);
    expect(await again).toBe("allowed");
    expect(asked).toHaveLength(2);
  });

  test("of another namespace or user is another call", async () => {
    const { time, permissions, asked } = harness(allowed);
    const all = [
      permissions.mayBypass(USER, "shop", 500),
      permissions.mayBypass(USER, "bank", 500),
      ...[{ username: "bob" }, { uid: "8" }, { groups: [] }, { extra: { scopes: ["b"] } }].map((other) =>
        permissions.mayBypass({ ...USER, ...other }, "shop", 500),
      ),
    ];
    await time.advance(5);
    await Promise.all(all);
    expect(asked).toHaveLength(6);
  });

  test("of a user that no apiserver has authenticated, by its length, is unknown, and not asked about", async () => {
    const { permissions, asked } = harness(allowed);
    const forged = { ...USER, groups: ["x".repeat(256 * 1024)] };
    expect(await permissions.mayBypass(forged, "shop", 500)).toBe("unknown");
    expect(asked).toEqual([]);
  });

  test("that is denied or unknown forces nothing; only a response is remembered", async () => {
    let result: ApiResult<unknown> = { kind: "ok", object: { status: { allowed: "true" } } };
    const { time, permissions, asked } = harness(() => result);
    const first = permissions.mayBypass(USER, "shop", 500);
    await time.advance(5);
    expect(await first).toBe("denied");
    result = { kind: "rejected", status: 403, message: "no" };
    const second = permissions.mayBypass(USER, "bank", 500);
    await time.advance(5);
    expect(await second).toBe("unknown");
    void permissions.mayBypass(USER, "bank", 500);
    expect(asked).toHaveLength(3);
  });

  test("is waited for by each request within its own deadline, also when they share a call", async () => {
    const { time, permissions, asked } = harness(allowed, 1_500);
    const answers: [string, string, number][] = [];
    const ask = (who: string, timeoutMs: number): void => {
      void permissions.mayBypass(USER, "shop", timeoutMs).then((answer) => answers.push([who, answer, time.elapsedMs]));
    };
    ask("first", 400);
    ask("patient", 9_000);
    await time.advance(100);
    ask("late", 600);
    await time.advance(2_000);
    // Half of the time that each had left: the other half is for the decision that follows.
    expect(answers).toEqual([
      ["first", "unknown", 200],
      ["late", "unknown", 400],
      ["patient", "allowed", 1_500],
    ]);
    expect(asked).toHaveLength(1);
  });

  test.each([
    ["from another address", "", "10.0.0.9"],
    ["with long users", "x".repeat(20_000), "10.0.0.1"],
  ])("is asked for a caller, whatever users others make up at the same time %s", async (_, more, address) => {
    const { time, permissions } = harness(allowed);
    const forged = Array.from({ length: 40 }, (_, count) =>
      permissions.mayBypass({ ...USER, username: `forged-${count}`, groups: [more] }, "shop", 500, address),
    );
    const real = permissions.mayBypass(USER, "shop", 500, "10.0.0.1");
    await time.advance(5);
    expect(await real).toBe("allowed");
    // The others are as many as one caller may ask for at once.
    expect((await Promise.all(forged)).filter((one) => one === "allowed")).toHaveLength(32);
    const later = permissions.mayBypass({ ...USER, username: "later", groups: [more] }, "shop", 500, address);
    await time.advance(5);
    expect(await later).toBe("allowed");
  });

  test.each([
    ["once it wants that", 1_000, "allowed", 2],
    ["but not where there is no time for it", 2_000, "unknown", 1],
  ])("is asked of a busy apiserver (429) again %s", async (_, retryAfterMs, expected, calls) => {
    const busy: ApiResult<unknown> = {
      kind: "unavailable",
      error: new Error(),
      sent: false,
      status: 429,
      retryAfterMs,
    };
    const results = [busy];
    const { time, permissions, asked } = harness(() => results.shift() ?? allowed());
    const answer = permissions.mayBypass(USER, "shop", 9_000);
    await time.advance(2_000);
    expect([await answer, asked.length]).toEqual([expected, calls]);
  });

  test("remembered permissions are bounded", async () => {
    const { time, permissions, asked } = harness(allowed);
    for (let count = 0; count < 1_100; count++) {
      const answer = permissions.mayBypass({ ...USER, username: `u${count}` }, "shop", 500);
      await time.advance(5);
      await answer;
    }
    // The newest are remembered, the oldest are not.
    void permissions.mayBypass({ ...USER, username: "u1099" }, "shop", 500);
    expect(asked).toHaveLength(1_100);
    void permissions.mayBypass({ ...USER, username: "u0" }, "shop", 500);
    expect(asked).toHaveLength(1_101);
  });
});
