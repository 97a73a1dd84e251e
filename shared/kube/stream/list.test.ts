/** When the pages of a list are requested, over a transport that a test drives by hand. */
import { expect, test } from "vitest";
import { raw, type Thing } from "../../../test/support/kube/reflector-harness.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import type { ApiRequest, ApiResponse, Transport } from "../client/transport.ts";
import { type Listed, listAll } from "./list.ts";

/** Each request stays open until the test responds. */
class OpenTransport implements Transport {
  readonly asked: { readonly request: ApiRequest; readonly answer: PromiseWithResolvers<ApiResponse> }[] = [];

  request(request: ApiRequest): Promise<ApiResponse> {
    const answer = Promise.withResolvers<ApiResponse>();
    request.signal?.addEventListener("abort", () => answer.reject(new Error("aborted")));
    this.asked.push({ request, answer });
    return answer.promise;
  }

  stream(): never {
    throw new Error("no watch in a list");
  }

  close(): void {}

  get tokens(): (string | null)[] {
    return this.asked.map(({ request }) => new URLSearchParams(request.path.split("?")[1]).get("continue"));
  }

  /** The first characters of the page arrive. */
  async begin(index: number, body: string): Promise<void> {
    this.asked[index]?.request.onBodyBegins?.(body.slice(0, body.indexOf('"items"') + 10));
    await turns();
  }

  async end(index: number, body: string): Promise<void> {
    this.asked[index]?.answer.resolve({ status: 200, headers: {}, body });
    await turns();
  }
}

/** Lets all microtasks run. */
async function turns(): Promise<void> {
  for (let turn = 0; turn < 20; turn++) await Promise.resolve();
}

function pageOf(name: string, token?: string): string {
  const metadata = JSON.stringify({ resourceVersion: "10", continue: token, remainingItemCount: 1 });
  const items = `[${JSON.stringify(raw(name, "5"))}]`;
  return `{"kind":"ThingList","apiVersion":"things.example.com/v1","metadata":${metadata},"items":${items}}`;
}

function listing(transport: OpenTransport): Promise<Listed<Thing>> {
  const lister = {
    name: "things",
    transport,
    ports: new VirtualTime(),
    collection: { path: "/things", query: {} },
    parse: (object: unknown) => {
      const { metadata } = object as { metadata: { name: string; uid: string; resourceVersion: string } };
      const { name, uid, resourceVersion: version } = metadata;
      return { owned: true, key: name, uid, version, object: { name, uid, version, color: "" } };
    },
    fallback: () => undefined,
    contact: () => undefined,
  };
  return listAll(lister, 1, undefined, new AbortController().signal);
}

test("the next page is requested while a page arrives; two requests are in flight at most", async () => {
  const transport = new OpenTransport();
  const listed = listing(transport);
  await turns();
  expect(transport.tokens).toEqual([null]);
  await transport.begin(0, pageOf("a", "one"));
  expect(transport.tokens).toEqual([null, "one"]);
  // Another page would be the third in memory.
  await transport.begin(1, pageOf("b", "two"));
  expect(transport.tokens).toEqual([null, "one"]);
  await transport.end(1, pageOf("b", "two"));
  expect(transport.tokens).toEqual([null, "one"]);
  await transport.end(0, pageOf("a", "one"));
  expect(transport.tokens).toEqual([null, "one", "two"]);
  await transport.end(2, pageOf("c"));
  expect([...(await listed).objects.keys()]).toEqual(["a", "b", "c"]);
});

test("a page that fails while the next one is in flight fails the list, and no request stays", async () => {
  const transport = new OpenTransport();
  const listed = listing(transport);
  await turns();
  await transport.begin(0, pageOf("a", "one"));
  await transport.begin(1, pageOf("b", "two"));
  transport.asked[0]?.answer.resolve({ status: 200, headers: {}, body: pageOf("a", "one").slice(0, -5) });
  await expect(listed).rejects.toMatchObject({ tag: "corrupt" });
  expect(transport.asked.map(({ request }) => request.signal?.aborted)).toEqual([true, true]);
});

test("a page that goes on where it began is corrupt, and the list ends", async () => {
  const transport = new OpenTransport();
  const failed = expect(listing(transport)).rejects.toMatchObject({
    tag: "corrupt",
    message: "things: a page of a list goes on where it began",
  });
  await turns();
  await transport.end(0, pageOf("a", "one"));
  await transport.end(1, pageOf("b", "one"));
  await failed;
  expect(transport.tokens).toEqual([null, "one", "one"]);
});

test("a page whose end contradicts its beginning is corrupt", async () => {
  const transport = new OpenTransport();
  const listed = listing(transport);
  await turns();
  await transport.begin(0, pageOf("a", "one"));
  await transport.end(0, pageOf("a", "other"));
  await expect(listed).rejects.toMatchObject({ tag: "corrupt" });
});
