/** When the pages of a list are requested, over a transport that a test drives by hand. */
import { describe, expect, test } from "vitest";
import { raw, type Thing } from "../../../test/support/kube/reflector-harness.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { type ApiRequest, type ApiResponse, type Transport, TransportError } from "../client/transport.ts";
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

function listing(transport: Transport, pageSize = 1, ports = new VirtualTime()): Promise<Listed<Thing>> {
  const lister = {
    name: "things",
    transport,
    ports,
    collection: { path: "/things", query: {} },
    parse: (object: unknown) => {
      const { metadata } = object as { metadata: { name: string; uid: string; resourceVersion: string } };
      const { name, uid, resourceVersion: version } = metadata;
      return { owned: true, key: name, uid, version, object: { name, uid, version, color: "" } };
    },
    fallback: () => undefined,
    contact: () => undefined,
  };
  return listAll(lister, pageSize, undefined, new AbortController().signal);
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

test("a page that a busy server puts off is asked for again: of a list of hundreds, one always is", async () => {
  const transport = new OpenTransport();
  const time = new VirtualTime();
  const listed = listing(transport, 1, time);
  await turns();
  await transport.end(0, pageOf("a", "one"));
  transport.asked[1]?.answer.resolve({ status: 429, headers: { "retry-after": "2" }, body: "" });
  await turns();
  expect(transport.tokens).toEqual([null, "one"]);
  await time.advance(3_000);
  await transport.end(2, pageOf("b", "two"));
  await transport.end(3, pageOf("c"));
  expect([...(await listed).objects.keys()]).toEqual(["a", "b", "c"]);
  expect(transport.tokens).toEqual([null, "one", "one", "two"]);
});

test("a server that puts off a page for ever gets a few requests, and then the list fails", async () => {
  const transport = new OpenTransport();
  const time = new VirtualTime();
  const failed = expect(listing(transport, 1, time)).rejects.toMatchObject({ tag: "throttled" });
  await turns();
  await transport.end(0, pageOf("a", "one"));
  for (let page = 1; page < 20; page++) {
    transport.asked[page]?.answer.resolve({ status: 429, headers: { "retry-after": "1" }, body: "" });
    await time.advance(2_000);
  }
  await failed;
  expect(transport.asked.length).toBeLessThanOrEqual(12);
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

test("a single object, which answers another request, is no empty list", async () => {
  const transport = new OpenTransport();
  const listed = listing(transport);
  await transport.end(0, JSON.stringify(raw("one", "10")));
  await expect(listed).rejects.toThrow(/no items/);
});

test("a page whose end contradicts its beginning is corrupt", async () => {
  const transport = new OpenTransport();
  const listed = listing(transport);
  await turns();
  await transport.begin(0, pageOf("a", "one"));
  await transport.end(0, pageOf("a", "other"));
  await expect(listed).rejects.toMatchObject({ tag: "corrupt" });
});

describe("objects too large to share a response", () => {
  const COUNT = 60;

  /** A server of 60 things, of which those from 20 on are `huge`: no response holds two of them. */
  function serverWith(huge: number): { readonly transport: Transport; readonly asked: string[] } {
    const asked: string[] = [];
    const transport: Transport = {
      async request({ path, signal }) {
        const query = new URLSearchParams(path.split("?")[1]);
        const [from, limit] = [Number(query.get("continue") ?? 0), Number(query.get("limit"))];
        asked.push(`${from}+${limit}`);
        await turns();
        if (signal?.aborted) throw new TransportError("aborted", true, "aborted");
        const names = Array.from({ length: Math.min(limit, COUNT - from) }, (_, index) => from + index);
        if (names.filter((name) => name >= 20 && name < 20 + huge).length > 1)
          throw new TransportError("oversized", true, "too large");
        const end = from + names.length;
        const metadata = { resourceVersion: "10", ...(end < COUNT ? { continue: String(end) } : {}) };
        const items = names.map((name) => raw(String(name), "5"));
        return { status: 200, headers: {}, body: JSON.stringify({ metadata, items }) };
      },
      stream: () => Promise.reject(new Error("unused")),
      close: () => undefined,
    };
    return { transport, asked };
  }

  test("are asked for one by one where they are, and the others in large pages", async () => {
    const { transport, asked } = serverWith(3);
    expect((await listing(transport, 16)).objects.size).toBe(COUNT);
    expect(asked).toEqual([
      ...["0+16", "16+16", "16+4", "20+16", "20+4", "20+1", "21+4", "21+1", "22+4", "26+16", "42+16", "58+16"],
    ]);
  });

  test("give up the page that is already asked for behind them", async () => {
    const transport = new OpenTransport();
    const listed = listing(transport, 4);
    await turns();
    await transport.begin(0, pageOf("a", "four"));
    expect(transport.tokens).toEqual([null, "four"]);
    transport.asked[0]?.answer.reject(new TransportError("oversized", true, "too large"));
    await turns();
    expect(transport.tokens).toEqual([null, "four", null]);
    expect(transport.asked.map(({ request }) => request.signal?.aborted)).toEqual([false, true, false]);
    await transport.end(2, pageOf("a", "one"));
    await transport.end(3, pageOf("b"));
    expect([...(await listed).objects.keys()]).toEqual(["a", "b"]);
  });

  test("fail the list where one alone is too large", async () => {
    const { transport } = serverWith(0);
    const request: Transport["request"] = async (asked) => {
      if (asked.path.includes("continue=16")) throw new TransportError("oversized", true, "too large");
      return await transport.request(asked);
    };
    await expect(listing({ ...transport, request }, 16)).rejects.toMatchObject({ tag: "oversized" });
  });
});

describe("pages that a thin wire does not carry in time", () => {
  /** A server whose pages of more than so many things do not arrive, behind a wire that delivers their first bytes. */
  function behindWire(most: number, begins: boolean): { readonly transport: Transport; readonly asked: string[] } {
    const asked: string[] = [];
    const transport: Transport = {
      async request({ path, onBodyBegins }) {
        const query = new URLSearchParams(path.split("?")[1]);
        const [from, limit] = [Number(query.get("continue") ?? 0), Number(query.get("limit"))];
        asked.push(`${from}+${limit}`);
        await turns();
        if (begins) onBodyBegins?.("{");
        if (limit > most) throw new TransportError("timeout", true, "too slow");
        const end = from + limit;
        const metadata = { resourceVersion: "10", ...(end < 60 ? { continue: String(end) } : {}) };
        return { status: 200, headers: {}, body: JSON.stringify({ metadata, items: [raw(String(from), "5")] }) };
      },
      stream: () => Promise.reject(new Error("unused")),
      close: () => undefined,
    };
    return { transport, asked };
  }

  test("are asked for again in smaller ones, and so are those behind them", async () => {
    const { transport, asked } = behindWire(20, true);
    await listing(transport, 64);
    expect(asked).toEqual(["0+64", "0+16", "16+16", "32+16", "48+16"]);
  });

  test("fail the list where the server sends nothing", async () => {
    const { transport, asked } = behindWire(20, false);
    await expect(listing(transport, 64)).rejects.toMatchObject({ tag: "timeout" });
    expect(asked).toEqual(["0+64"]);
  });
});
