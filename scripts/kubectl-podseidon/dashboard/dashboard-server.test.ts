/** Who may read the dashboard, and what a page gets: over real sockets, in virtual time. */
import { request } from "node:http";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { PodProtector } from "../../../shared/schema/podprotector.ts";
import { makeCell, makeProtector } from "../../../test/support/decide/fixtures.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { Board } from "./board.ts";
import { DashboardServer } from "./dashboard-server.ts";
import { MAX_PAGES } from "./event-streams.ts";
import { pageFiles } from "./page-files.ts";

const HOSTILE = '<img src=x onerror=alert(1)>\u202e\u001b[2J\n\nevent: hello\ndata: {"forged":1}';

function protector(name: string, reason?: string): PodProtector {
  const suspend = reason === undefined ? {} : { suspend: { enabled: true, reason } };
  const made = makeProtector([makeCell("east", 4)], suspend);
  return { ...made, metadata: { ...made.metadata, name } };
}

interface Answer {
  readonly status: number | undefined;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly text: string;
}

let time: VirtualTime;
let board: Board;
let server: DashboardServer;
let url: URL;

beforeAll(async () => {
  time = new VirtualTime();
  board = new Board(time.clock.nowMs());
  board.changed(0, undefined, protector("web"));
  board.changed(0, undefined, protector("cart", HOSTILE));
  server = await DashboardServer.start({
    ...{ board, watches: () => [], page: pageFiles({ script: "script()", style: "" }), cores: ["core"] },
    ...{ namespace: undefined, port: 0, startedMs: time.clock.nowMs(), ports: time },
  });
  url = new URL(server.url);
});

afterAll(() => server.stop());

interface Asked {
  readonly method?: string;
  readonly path?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

function ask({ method = "GET", path = url.pathname, headers = {} }: Asked): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const asked = request({ host: url.hostname, port: url.port, method, path, headers }, (response) => {
      let text = "";
      response.setEncoding("utf8").on("data", (chunk: string) => {
        text += chunk;
      });
      response.on("end", () => resolve({ status: response.statusCode, headers: response.headers, text }));
    });
    asked.on("error", reject).end();
  });
}

/** An open stream; `next` resolves with the next events. */
function stream(): Promise<{ readonly status: number | undefined; next(): Promise<string>; close(): void }> {
  return new Promise((resolve, reject) => {
    const asked = request({ host: url.hostname, port: url.port, path: `${url.pathname}updates` }, (response) => {
      const chunks = response.setEncoding("utf8")[Symbol.asyncIterator]();
      resolve({
        status: response.statusCode,
        next: async () => String((await chunks.next()).value ?? ""),
        close: () => response.destroy(),
      });
    });
    asked.on("error", reject).end();
  });
}

/** Reads until the text has `wanted`. */
async function until(source: { next(): Promise<string> }, wanted: string): Promise<string> {
  let text = "";
  while (!text.includes(wanted)) text += await source.next();
  return text;
}

describe("access", () => {
  test.each<[string, Asked, number]>([
    ["the address that was printed", {}, 200],
    ["localhost, through a tunnel", { headers: { host: "localhost:9999" } }, 200],
    ["no secret", { path: "/" }, 404],
    ["a wrong secret", { path: `/${"x".repeat(32)}/` }, 404],
    ["a wrong secret of another length", { path: "/x/" }, 404],
    ["no secret before the updates", { path: "/updates" }, 404],
    ["a name that was made to resolve to this machine", { headers: { host: "evil.example:80" } }, 421],
    ["a name that begins like loopback", { headers: { host: "127.0.0.1.evil.example" } }, 421],
    ["a write", { method: "POST" }, 405],
    ["a request that another site makes", { headers: { "sec-fetch-site": "cross-site" } }, 403],
    ["a request from another port of this machine", { headers: { "sec-fetch-site": "same-site" } }, 403],
    ["a request of the page", { headers: { "sec-fetch-site": "same-origin" } }, 200],
  ])("%s", async (_, asked, status) => {
    const answer = await ask(asked);
    expect(answer.status).toBe(status);
    if (status !== 200) expect(answer.text).not.toContain("<");
  });

  test("the address without its last slash is told to be wrong: the page's files are relative to it", async () => {
    const { status, text } = await ask({ path: url.pathname.slice(0, -1) });
    expect([status, text]).toEqual([404, expect.stringContaining("with the slash at its end")]);
  });

  test.each(["constructor", "toString", "__proto__", "page.css/", "protector/%"])(
    "there is no page %s",
    async (path) => {
      expect((await ask({ path: `${url.pathname}${path}` })).status).toBe(404);
    },
  );

  test("the secret has 192 bits and is another one for each server", async () => {
    expect(url.pathname).toMatch(/^\/[\w-]{32}\/$/);
  });

  test("nothing is loaded from elsewhere, kept, framed or referred to", async () => {
    const { headers } = await ask({});
    expect(headers["content-security-policy"]).toMatch(/^default-src 'none'; script-src 'self';/);
    expect(headers["content-security-policy"]).not.toContain("unsafe");
    expect(headers).toMatchObject({
      "cache-control": "no-store",
      "referrer-policy": "no-referrer",
      "cross-origin-resource-policy": "same-origin",
      "x-content-type-options": "nosniff",
      "x-frame-options": "DENY",
    });
    expect(headers).not.toHaveProperty("access-control-allow-origin");
  });
});

describe("a page", () => {
  test("gets everything first, and then what differs", async () => {
    const page = await stream();
    const first = await until(page, '"reservations"');
    expect(first.match(/^event: hello$/gm)).toHaveLength(1);
    expect(first).toContain('"name":"web"');
    board.changed(0, undefined, protector("pay"));
    await time.advance(500);
    const second = await until(page, '"name":"pay"');
    expect(second).not.toContain('"name":"web"');
    page.close();
  });

  test("hears that the plugin lives when nothing changes", async () => {
    const page = await stream();
    await until(page, '"reservations"');
    await time.advance(6_000);
    expect(await until(page, "event: update")).toContain('"atMs"');
    page.close();
  });

  test("more pages than the limit are turned away, and a place becomes free", async () => {
    await expect.poll(() => server.openPages).toBe(0);
    const pages = await Promise.all(Array.from({ length: MAX_PAGES }, () => stream()));
    expect(pages.map(({ status }) => status)).toEqual(pages.map(() => 200));
    expect((await stream()).status).toBe(503);
    pages[0]?.close();
    await expect.poll(() => server.openPages).toBe(MAX_PAGES - 1);
    for (const page of pages) page.close();
  });

  test("gets the detail of a protector, with what a tenant wrote as text in one line", async () => {
    const { status, headers, text } = await ask({ path: `${url.pathname}protector/0/default/cart` });
    expect([status, headers["content-type"]]).toEqual([200, "application/json"]);
    expect(text).not.toMatch(/\p{Cc}|\p{Bidi_Control}/u);
    expect(JSON.parse(text)).toMatchObject({
      row: { name: "cart", state: "suspended" },
      suspended: expect.stringContaining("\\u202e\\u001b[2J\n"),
    });
  });

  test.each(["0/default/gone", "1/default/web", "0/default/%zz", "../../etc/passwd", ""])(
    "gets no detail of %s",
    async (path) => {
      expect((await ask({ path: `${url.pathname}protector/${path}` })).status).toBe(404);
    },
  );
});
