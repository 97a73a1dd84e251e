import { expect, test } from "vitest";
import { failure, GET, startServer } from "../../../test/support/kube/https-server.ts";
import { LineSplitter } from "../stream/line-splitter.ts";

/** 63 MB of it take 1.5 GB once they are parsed: twice the heap of a webhook. */
const EMPTY = `{"items":[${"{},".repeat(3_500_000)}{}]}`;
/** As long, and what objects have: names and texts. */
const FULL = `{"items":[${`{"name":"${"x".repeat(100)}"},`.repeat(100_000)}{}]}`;

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
