/** A headless Chromium, driven by its DevTools protocol: no library needs to be kept in step with it. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { createInterface } from "node:readline";
import * as v from "valibot";

const NAMES = ["chromium", "chromium-browser", "google-chrome"];

/** Where Chromium is on this machine; undefined where it is not, and tests that need it do not run. */
export const chromium = (process.env.PATH ?? "")
  .split(delimiter)
  .flatMap((directory) => NAMES.map((name) => join(directory, name)))
  .find((path) => existsSync(path));

const Reply = v.looseObject({
  id: v.optional(v.number()),
  sessionId: v.optional(v.string()),
  method: v.optional(v.string()),
  params: v.optional(v.record(v.string(), v.unknown()), {}),
  result: v.optional(v.record(v.string(), v.unknown()), {}),
  error: v.optional(v.object({ message: v.string() })),
});
const Target = v.object({ targetId: v.string() });
const Session = v.object({ sessionId: v.string() });
const Evaluated = v.object({
  result: v.object({ value: v.optional(v.unknown()) }),
  exceptionDetails: v.optional(v.looseObject({ text: v.string() })),
});
const Requested = v.object({ request: v.object({ url: v.string() }) });
const Screenshot = v.object({ data: v.string() });
const Metrics = v.object({ metrics: v.array(v.object({ name: v.string(), value: v.number() })) });

/** For what hangs, not for what is slow. */
const WAIT_MS = 300_000;

/** Codes of keys that have no character. */
const KEY_CODES: Readonly<Record<string, number>> = {
  ...{ Enter: 13, Escape: 27, Tab: 9, End: 35, Home: 36, ArrowUp: 38, ArrowDown: 40 },
};

export class Browser {
  readonly #process: ChildProcess;
  readonly #profile: string;
  readonly #socket: WebSocket;
  readonly #replies = new Map<number, PromiseWithResolvers<Record<string, unknown>>>();
  #session: string | undefined;
  #id = 0;
  /** Every address that the page has asked for. */
  readonly requested: string[] = [];
  /** What the page has complained of: exceptions, and what its Content-Security-Policy kept it from. */
  readonly complaints: string[] = [];

  private constructor(process: ChildProcess, profile: string, socket: WebSocket) {
    this.#process = process;
    this.#profile = profile;
    this.#socket = socket;
    socket.addEventListener("message", ({ data }) => this.#hear(v.parse(Reply, JSON.parse(String(data)))));
  }

  /** Opens an empty page. */
  static async start(): Promise<Browser> {
    const profile = mkdtempSync(join(tmpdir(), "podseidon-browser-"));
    const child = spawn(
      chromium ?? "",
      [
        ...["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-port=0"],
        ...["--disable-background-networking", "--enable-precise-memory-info", "--disable-dev-shm-usage"],
        `--user-data-dir=${profile}`,
        "about:blank",
      ],
      { stdio: ["ignore", "ignore", "pipe"] },
    );
    const address = await devtoolsAddress(child);
    const socket = new WebSocket(address);
    await once(socket, "open");
    const browser = new Browser(child, profile, socket);
    const { targetId } = v.parse(Target, await browser.send("Target.createTarget", { url: "about:blank" }));
    const attached = await browser.send("Target.attachToTarget", { targetId, flatten: true });
    browser.#session = v.parse(Session, attached).sessionId;
    for (const domain of ["Page", "Runtime", "Network", "Log", "Performance"]) await browser.send(`${domain}.enable`);
    return browser;
  }

  async stop(): Promise<void> {
    const ended = once(this.#process, "exit");
    this.#socket.close();
    this.#process.kill("SIGKILL");
    await ended;
    rmSync(this.#profile, { recursive: true, force: true, maxRetries: 5 });
  }

  send(method: string, params: Readonly<Record<string, unknown>> = {}): Promise<Record<string, unknown>> {
    const id = ++this.#id;
    const reply = Promise.withResolvers<Record<string, unknown>>();
    this.#replies.set(id, reply);
    const session = this.#session === undefined ? {} : { sessionId: this.#session };
    this.#socket.send(JSON.stringify({ id, method, params, ...session }));
    return reply.promise;
  }

  async open(url: string): Promise<void> {
    await this.send("Page.navigate", { url });
  }

  /** Evaluates an expression in the page; a promise is waited for. */
  async evaluate(expression: string): Promise<unknown> {
    const params = { expression, awaitPromise: true, returnByValue: true };
    const { result, exceptionDetails } = v.parse(Evaluated, await this.send("Runtime.evaluate", params));
    if (exceptionDetails !== undefined) throw new Error(JSON.stringify(exceptionDetails).slice(0, 1000));
    return result.value;
  }

  /** Waits until an expression holds; rejects with what the page shows when it does not within a minute. */
  async until(expression: string): Promise<void> {
    const deadlineMs = performance.now() + WAIT_MS;
    while ((await this.evaluate(expression)) !== true) {
      if (performance.now() < deadlineMs) await this.evaluate("new Promise(requestAnimationFrame)");
      else throw new Error(`never: ${expression}\n${await this.evaluate("document.body.innerText")}`);
    }
  }

  /** Presses a key as a person does. */
  async press(key: string): Promise<void> {
    const code = KEY_CODES[key];
    const named = { key, code: key, windowsVirtualKeyCode: code };
    const typed = code === undefined ? { key, text: key } : key === "Enter" ? { ...named, text: "\r" } : named;
    await this.send("Input.dispatchKeyEvent", { type: code === undefined ? "keyDown" : "rawKeyDown", ...typed });
    if (key === "Enter") await this.send("Input.dispatchKeyEvent", { type: "char", ...typed });
    await this.send("Input.dispatchKeyEvent", { type: "keyUp", ...typed, text: undefined });
  }

  async colours(scheme: "light" | "dark"): Promise<void> {
    await this.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] });
  }

  async size(width: number, height: number): Promise<void> {
    await this.send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: false });
  }

  async screenshot(): Promise<Buffer> {
    const { data } = v.parse(Screenshot, await this.send("Page.captureScreenshot", { format: "png" }));
    return Buffer.from(data, "base64");
  }

  /** After a garbage collection: heap and DOM of the page. */
  async measure(): Promise<Readonly<Record<string, number>>> {
    await this.send("HeapProfiler.collectGarbage");
    const { metrics } = v.parse(Metrics, await this.send("Performance.getMetrics"));
    return Object.fromEntries(metrics.map(({ name, value }) => [name, value]));
  }

  #hear({ id, method, params, result, error }: v.InferOutput<typeof Reply>): void {
    if (id !== undefined) {
      const reply = this.#replies.get(id);
      this.#replies.delete(id);
      if (error === undefined) reply?.resolve(result);
      else reply?.reject(new Error(error.message));
    } else if (method === "Network.requestWillBeSent") this.requested.push(v.parse(Requested, params).request.url);
    else if (method === "Runtime.exceptionThrown" || method === "Log.entryAdded")
      this.complaints.push(JSON.stringify(params).slice(0, 500));
  }
}

async function devtoolsAddress(child: ChildProcess): Promise<string> {
  if (child.stderr === null) throw new Error("Chromium has no standard error");
  const said: string[] = [];
  for await (const line of createInterface({ input: child.stderr })) {
    const [, address] = /^DevTools listening on (\S+)/.exec(line) ?? [];
    if (address !== undefined) return address;
    said.push(line);
  }
  throw new Error(`Chromium did not start:\n${said.join("\n")}`);
}
