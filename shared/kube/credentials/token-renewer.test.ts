import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import type { ApiResult } from "../client/api-result.ts";
import { extensionsOf, readAccountToken, renewalMs, type TokenHome } from "./account-token.ts";
import { type TokenEvent, TokenRenewer } from "./token-renewer.ts";

const LIFE_MS = 7 * 86_400_000;
const HOME = { cell: "worker-2", namespace: "podseidon-system", secret: "podseidon-core-webhook" };
const OWNER = {
  namespace: "podseidon-system",
  serviceaccount: { name: "podseidon-webhook.worker-2", uid: "a1" },
  secret: { name: "podseidon-cell.worker-2", uid: "s1" },
};

const encoded = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString("base64url");

function token(issuedMs: number, owner: object = OWNER, mark = "x"): string {
  const claims = { iat: issuedMs / 1000, exp: (issuedMs + LIFE_MS) / 1000, "kubernetes.io": owner };
  return `e30.${encoded(claims)}.${mark}`;
}

describe("a token is renewed at 80 to 85 per cent of its life", () => {
  test.each([
    [0, 0.8],
    [0.5, 0.825],
    [1, 0.85],
  ])("%d of the jitter", (fraction, share) => {
    const read = readAccountToken(token(1_000_000));
    expect(read && renewalMs(read, fraction)).toBeCloseTo(1_000_000 + share * LIFE_MS);
  });

  test.each(["", "abc", "a.b.c", `e30.${encoded({ exp: 1 })}.x`, `e30.${encoded([])}.x`])("%j is no token", (text) => {
    expect(readAccountToken(text)).toBeUndefined();
  });
});

type Patch = readonly { readonly op: string; readonly path: string; readonly value: string }[];
const REFUSED = { kind: "rejected", status: 403, message: "may not" } as const;
const OUTDATED = { kind: "rejected", status: 422, message: "test failed" } as const;
const OK = { kind: "ok", object: undefined } as const;

describe("the renewal", () => {
  const none = new AbortController().signal;
  let directory: string;
  let path: string;
  let time: VirtualTime;
  let calls: string[];
  let written: Patch;
  let issuing: () => ApiResult<unknown>;
  let writing: () => ApiResult<undefined>;
  let events: TokenEvent[];
  let renewer: TokenRenewer;

  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), "token-renewer-"));
    path = join(directory, "kubeconfig");
    time = new VirtualTime();
    [calls, written, events] = [[], [], []];
    issuing = () => ({ kind: "ok", object: { status: { token: token(time.clock.nowMs(), OWNER, "new") } } });
    writing = () => OK;
    renewer = new TokenRenewer({
      ...{ name: "core", path, ports: time, onEvent: (event) => void events.push(event) },
      api: {
        create: async (at, body, parse) => {
          calls.push(`POST ${at} ${JSON.stringify(body)}`);
          const result = issuing();
          return result.kind === "ok" ? { kind: "ok", object: parse(result.object) } : result;
        },
        patch: () => Promise.reject(new Error("the core is not patched")),
      },
      cellApi: (cell) =>
        cell === HOME.cell
          ? {
              create: () => Promise.reject(new Error("nothing is created in the cell")),
              patch: async (at, _, body, parse) => {
                calls.push(`PATCH ${at}`);
                written = body as Patch;
                const result = writing();
                return result.kind === "ok" ? { kind: "ok", object: parse({}) } : result;
              },
            }
          : undefined,
    });
  });
  afterEach(() => rmSync(directory, { recursive: true }));

  function kubeconfig(text: string, home: TokenHome = HOME): string {
    const user = { token: text, extensions: extensionsOf(home) };
    const config = {
      "current-context": "core",
      contexts: [{ name: "core", context: { cluster: "core", user: "u" } }],
      clusters: [{ name: "core", cluster: { server: "https://core:6443" } }],
      users: [{ name: "u", user }],
    };
    const content = JSON.stringify(config);
    writeFileSync(path, content);
    return content;
  }

  const kinds = (): string[] => events.map(({ kind }) => kind);

  /** A token of which this share has passed. */
  const aged = (share: number, owner: object = OWNER): string =>
    token(Math.round((time.clock.nowMs() - share * LIFE_MS) / 1000) * 1000, owner);

  test("asks for a token of the same life, bound to the same Secret, and replaces it in the kubeconfig", async () => {
    const old = aged(0.95);
    const text = kubeconfig(old);
    expect(await renewer.check(none)).toBe(true);
    const boundObjectRef = { apiVersion: "v1", kind: "Secret", ...OWNER.secret };
    const spec = { expirationSeconds: LIFE_MS / 1000, boundObjectRef };
    const request = { apiVersion: "authentication.k8s.io/v1", kind: "TokenRequest", spec };
    const account = "/api/v1/namespaces/podseidon-system/serviceaccounts/podseidon-webhook.worker-2/token";
    expect(calls).toEqual([
      `POST ${account} ${JSON.stringify(request)}`,
      "PATCH /api/v1/namespaces/podseidon-system/secrets/podseidon-core-webhook",
    ]);
    const decoded = written.map(({ op, value }) => [op, Buffer.from(value, "base64").toString()]);
    const renewed = token(time.clock.nowMs(), OWNER, "new");
    expect(decoded).toEqual([
      ["test", text],
      ["replace", text.replace(old, renewed)],
    ]);
    expect(kinds()).toEqual(["held", "renewed"]);
    expect(JSON.stringify(events)).not.toContain(renewed);
  });

  test.each<[string, () => void]>([
    ["a token that is young", () => kubeconfig(aged(0.79))],
    ["a kubeconfig that nobody joined", () => writeFileSync(path, kubeconfig(aged(0.95)).replace("extensions", "e"))],
    ["a file that is not there", () => {}],
    ["a kubeconfig that is none", () => writeFileSync(path, "a: [")],
  ])("leaves %s alone", async (_, prepare) => {
    prepare();
    expect([await renewer.check(none), calls, kinds()]).toEqual([true, [], ["held"]]);
  });

  test.each<[string, () => void]>([
    ["the cell took it", () => {}],
    ["another replica was first", () => (writing = () => OUTDATED)],
  ])("waits for the kubelet when %s", async (_, prepare) => {
    prepare();
    kubeconfig(aged(0.95));
    expect([await renewer.check(none), await renewer.check(none), calls.length]).toEqual([true, true, 2]);
    kubeconfig(aged(0.91));
    expect([await renewer.check(none), calls.length]).toEqual([true, 4]);
  });

  test.each<[string, () => void]>([
    ["the Secret was written", () => {}],
    [
      "the Secret may not change, which its apiserver answers as it does a failed test",
      () => (writing = () => OUTDATED),
    ],
  ])("says that the token did not arrive when %s, and tries again", async (_, prepare) => {
    prepare();
    kubeconfig(aged(0.95));
    expect(await renewer.check(none)).toBe(true);
    await time.advance(299_000);
    expect([await renewer.check(none), calls.length]).toEqual([true, 2]);
    await time.advance(2_000);
    expect([await renewer.check(none), calls.length]).toEqual([false, 2]);
    const failure = events.at(-1);
    expect(failure?.kind === "failed" && String(failure.error)).toContain("podseidon-core-webhook");
    expect([await renewer.check(none), calls.length]).toEqual([true, 4]);
  });

  test.each<[string, () => void, string]>([
    ["the core refuses", () => (issuing = () => REFUSED), "may not"],
    [
      "the core gives no token",
      () => (issuing = () => ({ kind: "unavailable", error: new Error("down"), sent: true })),
      "down",
    ],
    ["the cell refuses", () => (writing = () => REFUSED), "may not"],
    ["the Secret is gone", () => (writing = () => ({ kind: "gone" })), "does not exist: join again"],
    ["it is of another cell", () => kubeconfig(aged(0.95), { ...HOME, cell: "other" }), "of another cell, other"],
    ["it is bound to nothing", () => kubeconfig(aged(0.95, { ...OWNER, secret: undefined })), "join again"],
  ])("says why it fails when %s, and tries again", async (_, prepare, message) => {
    kubeconfig(aged(0.95));
    prepare();
    expect([await renewer.check(none), await renewer.check(none)]).toEqual([false, false]);
    expect(kinds()).toEqual(["held", "failed", "held", "failed"]);
    const [, failure] = events;
    expect(failure?.kind === "failed" && String(failure.error)).toContain(message);
  });
});
