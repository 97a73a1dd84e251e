import { afterEach, describe, expect, test } from "vitest";
import { ApiClient } from "../../../shared/kube/client/api-client.ts";
import type { ApiRequest, ApiResponse, ApiStream, Transport } from "../../../shared/kube/client/transport.ts";
import { ScriptedStream } from "../../../test/support/kube/scripted-transport.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { Discovery } from "./discovery.ts";
import { KindWatch } from "./kind-watch.ts";
import { plugins } from "./plugins.ts";
import type { SourcePlugin } from "./protection-source.ts";

/** One kind of one server: which versions it serves, and one object; down, it answers nothing of use. */
class Server implements Transport {
  served: string[] = [];
  resources: object[] = [];
  isDown = false;
  readonly asked: string[] = [];
  readonly #open: ScriptedStream[] = [];

  async request({ path }: ApiRequest): Promise<ApiResponse> {
    const [plain = ""] = path.split("?");
    this.asked.push(plain);
    if (this.isDown) return { status: 503, headers: {}, body: "" };
    const version = plain.split("/")[3] ?? "";
    if (!this.served.includes(version)) return { status: 404, headers: {}, body: "404 page not found" };
    const isDiscovery = plain.split("/").length === 4;
    const metadata = { name: "web", namespace: "shop", uid: "u1", resourceVersion: "5" };
    const body = isDiscovery
      ? { resources: this.resources }
      : { metadata: { resourceVersion: "9" }, items: [{ metadata, spec: { selector: {}, minAvailable: 1 } }] };
    return { status: 200, headers: {}, body: JSON.stringify(body) };
  }

  async stream({ path, signal }: ApiRequest): Promise<ApiStream> {
    const isServed = this.served.includes(path.split("/")[3] ?? "");
    const stream = isServed ? new ScriptedStream() : new ScriptedStream().text("404 page not found").end();
    if (isServed) this.#open.push(stream);
    return { status: isServed ? 200 : 404, headers: {}, chunks: stream.read(signal), close: () => {} };
  }

  /** The kind is uninstalled: its streams end too. */
  uninstall(): void {
    this.served = [];
    for (const stream of this.#open.splice(0)) stream.end();
  }

  close(): void {}
}

const BUDGETS = [{ name: "podunavailablebudgets", kind: "PodUnavailableBudget" }];
const all = plugins({ protectSelector: "", protectNonZero: true, scalable: ["fleet.example.com/v1/workloads"] });

class Rig {
  readonly time = new VirtualTime({ seed: 3 });
  readonly server = new Server();
  readonly told: string[] = [];
  readonly watch: KindWatch;
  readonly #stopping = new AbortController();
  #running: Promise<void> | undefined;

  constructor(name: string) {
    const plugin = all.find((one): one is SourcePlugin => one.name === name);
    if (plugin === undefined) throw new Error(`there is no plugin ${name}`);
    this.watch = new KindWatch({
      plugin,
      transport: this.server,
      ports: this.time,
      discovery: new Discovery(new ApiClient(this.server), 1000),
      onWatch: () => {},
      onChanged: (before, after) => this.told.push(`${before?.name ?? "-"} > ${after?.name ?? "-"}`),
      onReady: () => this.told.push("ready"),
      onServed: (served, { version, kind }) => this.told.push(`${served ? "served" : "gone"} ${version} ${kind}`),
    });
  }

  async run(ms: number): Promise<void> {
    this.#running ??= this.watch.run(this.#stopping.signal);
    await this.time.advance(ms);
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.time.advance(60_000);
    await this.#running;
  }
}

let rig: Rig;
afterEach(() => rig.stop());

describe("a kind that need not be installed", () => {
  test("is ready without it, and asked for often at first and seldom later", async () => {
    rig = new Rig("xpoddisruptionbudget");
    await rig.run(0);
    expect(rig.told).toEqual(["ready"]);
    expect(rig.watch.ready).toBe(true);
    await rig.run(10_000);
    const soon = rig.server.asked.length;
    expect(soon).toBeGreaterThanOrEqual(4);
    await rig.run(60_000);
    const before = rig.server.asked.length;
    await rig.run(600_000);
    expect(rig.server.asked.length - before).toBeLessThanOrEqual(80);
    expect(rig.server.asked.length - before).toBeGreaterThanOrEqual(30);
  });

  test("is not taken to be missing when the server answers nothing", async () => {
    rig = new Rig("podunavailablebudget");
    rig.server.isDown = true;
    await rig.run(60_000);
    expect(rig.told).toEqual([]);
    expect(rig.watch.ready).toBe(false);
  });

  test("is picked up when it appears, in the best version that there is", async () => {
    rig = new Rig("podunavailablebudget");
    await rig.run(60_000);
    Object.assign(rig.server, { served: ["v1alpha1"], resources: BUDGETS });
    await rig.run(30_000);
    expect(rig.told).toEqual(["ready", "served v1alpha1 PodUnavailableBudget", "- > web", "ready"]);
    expect(rig.watch.kind.version).toBe("v1alpha1");
    expect(rig.watch.get("shop/web")?.decision).toBe("Protected");
  });

  test("is dropped when it goes, its objects as vanished, and picked up again", async () => {
    rig = new Rig("podunavailablebudget");
    Object.assign(rig.server, { served: ["v1beta1", "v1alpha1"], resources: BUDGETS });
    await rig.run(5000);
    rig.told.length = 0;
    rig.server.uninstall();
    await rig.run(30_000);
    expect(rig.told).toEqual(["web > -", "gone v1beta1 PodUnavailableBudget"]);
    expect(rig.watch.ready).toBe(true);
    expect([...rig.watch.values()]).toEqual([]);
    rig.server.served = ["v1beta1"];
    await rig.run(60_000);
    expect(rig.told.slice(2)).toEqual(["served v1beta1 PodUnavailableBudget", "- > web", "ready"]);
  });

  test("of which only the path is known gets its name from discovery, and needs a scale subresource", async () => {
    rig = new Rig("workloads.fleet.example.com");
    Object.assign(rig.server, { served: ["v1"], resources: [{ name: "workloads", kind: "Workload" }] });
    await rig.run(30_000);
    expect(rig.told).toEqual(["ready"]);
    rig.server.resources.push({ name: "workloads/scale", kind: "Scale" });
    await rig.run(30_000);
    expect(rig.watch.kind.kind).toBe("Workload");
    expect(rig.watch.get("shop/web")?.need).toEqual({ kind: "scale", maxUnavailable: "25%" });
  });
});

test("a kind that every cluster has is not looked for", async () => {
  rig = new Rig("poddisruptionbudget");
  Object.assign(rig.server, { served: ["v1"] });
  await rig.run(1000);
  expect(rig.told).toEqual(["- > web", "ready"]);
  expect(rig.server.asked).toEqual(["/apis/policy/v1/poddisruptionbudgets"]);
});
