import { describe, expect, test } from "vitest";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import type { ApiResult } from "../kube/client/api-result.ts";
import { MetricsReaders, REMEMBERED_MS } from "./metrics-auth.ts";

interface Told {
  authenticated?: boolean;
  allowed?: boolean;
  isDown?: boolean;
}

/** A cluster that counts the reviews that it is asked for. */
function world(told: Told) {
  const time = new VirtualTime();
  const asked: unknown[] = [];
  const create = async <T>(path: string, body: unknown, parse: (raw: unknown) => T): Promise<ApiResult<T>> => {
    asked.push(body);
    if (told.isDown === true) return { kind: "unavailable", error: new Error("down"), sent: false };
    const user = { username: "eve", groups: ["g"], extra: { scopes: ["a"] } };
    const token = { status: { authenticated: told.authenticated ?? true, user } };
    const access = { status: { allowed: told.allowed ?? true } };
    return { kind: "ok", object: parse(path.endsWith("/tokenreviews") ? token : access) };
  };
  return { time, asked, told, readers: new MetricsReaders({ create }, time) };
}

describe("who may read the metrics", () => {
  test.each<[string, Told, string | undefined, number]>([
    ["nobody without a token", {}, undefined, 401],
    ["nobody with another kind of credentials", {}, "Basic eDp5", 401],
    ["nobody with a token that the cluster does not know", { authenticated: false }, "Bearer x", 401],
    ["no user without the permission", { allowed: false }, "Bearer x", 403],
    ["nobody while the cluster can't be asked", { isDown: true }, "Bearer x", 503],
    ["a user with the permission", {}, "Bearer x", 200],
  ])("%s", async (_, told, authorization, expected) => {
    expect(await world(told).readers.outcome(authorization)).toBe(expected);
  });

  test("the cluster is asked about the user as it has authenticated it", async () => {
    const { asked, readers } = world({});
    await readers.outcome("Bearer x");
    expect(asked).toMatchObject([
      { spec: { token: "x" } },
      {
        spec: {
          ...{ user: "eve", groups: ["g"], extra: { scopes: ["a"] } },
          nonResourceAttributes: { path: "/metrics", verb: "get" },
        },
      },
    ]);
  });

  test("the cluster is asked once for many scrapes, and again after a short time", async () => {
    const { asked, readers, time, told } = world({});
    expect(await Promise.all([readers.outcome("Bearer x"), readers.outcome("Bearer x")])).toEqual([200, 200]);
    expect(await readers.outcome("Bearer x")).toBe(200);
    expect(asked).toHaveLength(2);
    told.allowed = false;
    await time.advance(REMEMBERED_MS);
    expect(await readers.outcome("Bearer x")).toBe(403);
  });

  test("a flood of forged tokens keeps no reader out that the cluster has let in before", async () => {
    const { readers, time, told } = world({});
    expect(await readers.outcome("Bearer reader")).toBe(200);
    told.authenticated = false;
    for (let index = 0; index < 100; index++) expect(await readers.outcome(`Bearer known${index}`)).toBe(401);
    await time.advance(REMEMBERED_MS);
    told.authenticated = true;
    const forged = Array.from({ length: 100 }, (_, index) => readers.outcome(`Bearer ${index}`));
    expect(await readers.outcome("Bearer reader")).toBe(200);
    await Promise.all(forged);
  });

  test("a flood of tokens asks no more than a few times at once", async () => {
    const { asked, readers } = world({ authenticated: false });
    const outcomes = await Promise.all(Array.from({ length: 100 }, (_, index) => readers.outcome(`Bearer ${index}`)));
    expect(asked.length).toBeLessThan(20);
    expect(new Set(outcomes)).toEqual(new Set([401, 503]));
  });
});
