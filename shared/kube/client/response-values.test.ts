import { describe, expect, test } from "vitest";
import { failure, GET, startServer } from "../../../test/support/kube/https-server.ts";
import { LineSplitter } from "../stream/line-splitter.ts";
import { describeFailure, failureOf, parseStatus } from "./api-result.ts";

/** 63 MB of it take 1.5 GB once they are parsed: twice the heap of a webhook. */
const EMPTY = `{"items":[${"{},".repeat(3_500_000)}{}]}`;
/** As long, and what objects have: names and texts. */
const FULL = `{"items":[${`{"name":"${"x".repeat(100)}"},`.repeat(100_000)}{}]}`;

const TEXT = "Too large resource version: 9, current: 8";
const TOO_LARGE = { code: 0, message: "", absent: undefined, versionTooLarge: true };

function tooLarge(cause: object): object {
  return { details: { causes: [{}, cause] } };
}

test.each<[string, string, string]>([
  ["millions of empty objects", EMPTY, "oversized"],
  ["lists in lists without end", "[".repeat(9_000_000), "oversized"],
])("a response with %s, which takes many times its bytes once it is parsed, is rejected", async (_, body, tag) => {
  const it = await startServer((_, response) => response.end(body));
  expect(await failure(it.transport.request(GET))).toMatchObject({ tag, sent: true });
});

test("a response as long as that, of objects as they are, is read", async () => {
  const it = await startServer((_, response) => response.end(FULL));
  expect((await it.transport.request(GET)).body).toBe(FULL);
});

test("a watch line with millions of empty objects is corrupt", () => {
  expect(() => [...new LineSplitter().push(Buffer.from(`${EMPTY}\n`))]).toThrow(
    expect.objectContaining({ tag: "corrupt" }),
  );
});

describe("a Status", () => {
  const NOTHING = { code: 0, message: "", absent: undefined, versionTooLarge: false };

  test.each<[string, object, object]>([
    ["nothing", {}, NOTHING],
    ["no details", { code: 404, details: null }, { ...NOTHING, code: 404 }],
    ["no causes", { details: { causes: null, retryAfterSeconds: 0 } }, NOTHING],
    ["a cause without a reason", { details: { causes: [{ message: "" }] } }, NOTHING],
    ["a version that the server has not reached", tooLarge({ reason: "ResourceVersionTooLarge" }), TOO_LARGE],
    ["a version that an older server has not reached", { message: TEXT }, { ...TOO_LARGE, message: TEXT }],
  ])("that says %s is read", (_, fields, expected) => {
    expect(parseStatus({ kind: "Status", ...fields })).toEqual(expected);
    expect(parseStatus(JSON.stringify({ kind: "Status", ...fields }))).toEqual(expected);
  });

  test.each([[{ message: "no kind" }], [{ kind: "Pod", message: "another kind" }]])("is not %j", (body) => {
    expect(parseStatus(body)).toBeUndefined();
  });
});

describe("a Status of a server that is taken over", () => {
  test("is read to the first thing that is wrong in it: a million wrong causes took seconds, four all memory", () => {
    let reads = 0;
    const causes = new Proxy(Array(1000).fill(1), {
      get: (target, key) => {
        if (typeof key === "string" && key !== "length") reads++;
        return Reflect.get(target, key);
      },
    });
    expect(parseStatus({ kind: "Status", details: { causes } })).toBeUndefined();
    expect(reads).toBeLessThan(10);
  });

  test.each([400, 404, 409, 503])("leaves nothing of its reason and its names, with %i", (status) => {
    const text = "x".repeat(1_000_000);
    const body = JSON.stringify({ kind: "Status", reason: text, details: { name: text, kind: text, uid: text } });
    const failure = failureOf({ status, headers: {}, body }, "GET pod");
    expect(JSON.stringify(failure).length + describeFailure(failure).length).toBeLessThan(500);
  });

  test.each<[string, string]>([
    ["message", JSON.stringify({ kind: "Status", message: "x".repeat(1_000_000) })],
    ["text that is no Status", "x".repeat(1_000_000)],
  ])("is no %s of megabytes in what is told of it", (_, body) => {
    const failure = failureOf({ status: 500, headers: {}, body }, "GET pod");
    expect(describeFailure(failure)).toMatch(/^GET pod: HTTP 500: x{200}/);
    expect(describeFailure(failure).length).toBeLessThan(10_000);
  });
});
