/** What the generator does while its watches do not show its own writes yet. */
import { expect, test } from "vitest";
import { type Transport, TransportError } from "../../shared/kube/client/transport.ts";
import { isRecord } from "../../shared/schema/check.ts";
import { pluginNamed } from "../../test/support/generator/plugin-named.ts";
import { JSON_TYPE, ScriptedStream } from "../../test/support/kube/scripted-transport.ts";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { Generator } from "./generator.ts";
// The reconciler loads these at need, which takes real time.
import "./protectors/remove-cells.ts";
import "./protectors/undone-repairs.ts";

const GENERATOR = "podseidon.kubewharf.io/generator";
type Resource = "deployments" | "podprotectors" | "configmaps";
interface Stored {
  readonly metadata: Readonly<Record<string, unknown>> & { readonly name: string; readonly finalizers?: string[] };
  readonly [field: string]: unknown;
}

function merged(before: unknown, patch: unknown): unknown {
  if (!isRecord(patch)) return patch;
  const result: Record<string, unknown> = isRecord(before) ? { ...before } : {};
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete result[key];
    else result[key] = merged(result[key], value);
  }
  return result;
}

/** A core that stores what is written, and whose watches show only what a test tells them to. */
class FakeCore {
  readonly writes: string[] = [];
  /** Of single objects. */
  reads = 0;
  /** Whether a write gets an answer once it is stored. */
  answers: (write: string) => boolean = () => true;
  readonly #stored = new Map<string, Stored>();
  readonly #streams = new Map<string, ScriptedStream>();
  version = 100;

  get(resource: Resource, name: string): Stored | undefined {
    return this.#stored.get(`${resource}/${name}`);
  }

  /** Stores an object, which is gone once it is deleted and has no finalizer. */
  put(resource: Resource, object: Stored): Stored {
    const key = `${resource}/${object.metadata.name}`;
    const before = this.#stored.get(key)?.metadata;
    const { uid, generation } = { uid: `uid-${this.version}`, generation: 1, ...before };
    this.version += 1;
    const metadata = { namespace: "shop", uid, generation, ...object.metadata, resourceVersion: `${this.version}` };
    const stored = { ...object, metadata };
    const isGone = object.metadata.deletionTimestamp !== undefined && (object.metadata.finalizers ?? []).length === 0;
    if (isGone) this.#stored.delete(key);
    else this.#stored.set(key, stored);
    return stored;
  }

  /** Without a sign, as by a restore. */
  forget(resource: Resource, name: string): void {
    this.#stored.delete(`${resource}/${name}`);
  }

  show(resource: Resource, type: string, object: unknown): void {
    this.#streams.get(resource)?.event(type, object);
  }

  /** The watch ends, and is to begin with a new list. */
  expire(resource: Resource): void {
    this.show(resource, "ERROR", { kind: "Status", code: 410, reason: "Expired" });
  }

  readonly transport: Transport = {
    request: async ({ method, path, body }) => {
      const [, resource = "", , name, sub] =
        /\/(deployments|podprotectors|configmaps)(\/([^/?]+))?(\/status)?/.exec(path) ?? [];
      const answer = (status: number, sent: unknown) => ({ status, headers: {}, body: JSON.stringify(sent) });
      const found = this.#stored.get(`${resource}/${name}`);
      if (method === "GET" && name === undefined) {
        const items = [...this.#stored].filter(([key]) => key.startsWith(`${resource}/`)).map(([, object]) => object);
        return answer(200, { metadata: { resourceVersion: `${this.version}` }, items });
      }
      const missing = answer(404, { kind: "Status", reason: "NotFound", details: { name } });
      if (method === "GET") {
        this.reads += 1;
        return found === undefined ? missing : answer(200, found);
      }
      const sent = JSON.parse(body ?? "{}");
      const write = `${method} ${resource} ${name ?? sent.metadata.name}${sub ?? ""}`;
      this.writes.push(write);
      if (method === "POST") {
        if (this.get(resource as Resource, sent.metadata.name)) return answer(409, { reason: "AlreadyExists" });
      } else if (found === undefined) return missing;
      const { resourceVersion = found?.metadata.resourceVersion } = sent.metadata ?? {};
      if (resourceVersion !== found?.metadata.resourceVersion) return answer(409, { reason: "Conflict" });
      const deletionTimestamp = "2026-01-01T00:00:00Z";
      const changed =
        method === "PATCH" || sub !== undefined
          ? merged(found, sub === undefined ? sent : { status: sent.status })
          : method === "DELETE"
            ? merged(found, { metadata: { deletionTimestamp } })
            : merged({}, { ...sent, metadata: { ...found?.metadata, ...sent.metadata } });
      const isSame = found !== undefined && JSON.stringify(found) === JSON.stringify(changed);
      const stored = isSame ? found : this.put(resource as Resource, changed as Stored);
      if (!this.answers(write)) throw new TransportError("reset", true, "the connection was lost");
      return answer(method === "POST" ? 201 : 200, stored);
    },
    stream: async ({ path, signal }) => {
      const [, resource = ""] = /\/(deployments|podprotectors|configmaps)/.exec(path) ?? [];
      const stream = new ScriptedStream();
      this.#streams.set(resource, stream);
      return { status: 200, headers: JSON_TYPE, chunks: stream.read(signal), close: () => {} };
    },
    close: () => {},
  };
}

function deployment(more: object = {}, replicas = 3): Stored {
  return {
    metadata: { name: "web", labels: { "podseidon.kubewharf.io/protect": "true" }, ...more },
    spec: { replicas, minReadySeconds: 0, selector: { matchLabels: { app: "web" } }, template: {} },
  };
}

async function leading(then: (core: FakeCore, time: VirtualTime, events: string[]) => Promise<void>): Promise<void> {
  const [time, core] = [new VirtualTime(), new FakeCore()];
  core.put("deployments", deployment());
  const events: string[] = [];
  const generator = new Generator({
    ...{ transport: core.transport, ports: time, plugins: [pluginNamed("deployment")], concurrency: 1 },
    mayWrite: () => true,
    observer: { generator: ({ kind }) => void events.push(kind), watch: () => {}, queue: () => {} },
  });
  const end = new AbortController();
  const ended = generator.lead(end.signal);
  await then(core, time, events);
  end.abort();
  await time.advance(1_000);
  await ended;
}

test.each([true, false])(
  "nothing is restored that the watches show before its release (of a known one: %s)",
  async (isKnown) => {
    await leading(async (core, time) => {
      await time.advance(500);
      const made = core.get("podprotectors", "deployment-web");
      if (isKnown) core.show("podprotectors", "ADDED", made);
      const finalizers = [GENERATOR];
      const deletionTimestamp = "2026-01-01T00:00:00Z";
      core.show("deployments", "MODIFIED", core.put("deployments", deployment({ finalizers, deletionTimestamp }, 0)));
      await time.advance(500);
      expect([core.get("podprotectors", "deployment-web"), core.get("deployments", "web")]).toEqual([
        undefined,
        undefined,
      ]);
      if (!isKnown) core.show("podprotectors", "ADDED", made);
      await time.advance(500);
      core.writes.length = 0;
      // These lists have passed what the watch would have shown of the mark; the watch of the register is silent.
      core.expire("podprotectors");
      core.expire("deployments");
      await time.advance(2_000);
      expect(core.writes.filter((write) => write.includes("podprotectors"))).toEqual([]);
    });
  },
);

/** Its workload, at zero, is deleted. */
async function expectNothingLeft(core: FakeCore, time: VirtualTime, withinMs: number): Promise<void> {
  const deleted = deployment({ finalizers: [GENERATOR], deletionTimestamp: "2026-01-01T00:00:00Z" }, 0);
  core.show("deployments", "MODIFIED", core.put("deployments", deleted));
  await time.advance(withinMs);
  expect([core.get("podprotectors", "deployment-web"), core.get("deployments", "web")]).toEqual([undefined, undefined]);
}

test("a protector whose creation got no answer does not outlive its workload", async () => {
  await leading(async (core, time) => {
    core.answers = (write) => write !== "POST podprotectors deployment-web";
    await time.advance(500);
    expect(core.get("podprotectors", "deployment-web")).toBeDefined();
    await expectNothingLeft(core, time, 2_000);
  });
});

test("nor does one that was restored without an answer", async () => {
  await leading(async (core, time, events) => {
    await time.advance(500);
    core.show("deployments", "MODIFIED", core.get("deployments", "web"));
    const made = core.get("podprotectors", "deployment-web") as Stored;
    core.show("podprotectors", "ADDED", made);
    await time.advance(500);
    // A client deletes it by force, and the watch is late again.
    core.answers = (write) => write !== "POST podprotectors deployment-web";
    core.forget("podprotectors", "deployment-web");
    core.version += 1;
    core.show("podprotectors", "DELETED", {
      ...made,
      metadata: { ...made.metadata, resourceVersion: `${core.version}` },
    });
    await time.advance(500);
    expect(events).toEqual(["held", "created", "failed"]);
    expect(core.get("podprotectors", "deployment-web")).toBeDefined();
    await expectNothingLeft(core, time, 5_000);
  });
});

/** The workload's protector is created, and is lost from the core then. Returns what it was. */
async function lose(core: FakeCore, time: VirtualTime): Promise<Stored> {
  await time.advance(500);
  core.show("deployments", "MODIFIED", core.get("deployments", "web"));
  const made = core.get("podprotectors", "deployment-web") as Stored;
  core.show("podprotectors", "ADDED", made);
  await time.advance(500);
  core.forget("podprotectors", "deployment-web");
  core.version += 1;
  const resourceVersion = `${core.version}`;
  core.show("podprotectors", "DELETED", { ...made, metadata: { ...made.metadata, resourceVersion } });
  return made;
}

test.each([
  ["is deleted", { deletionTimestamp: "2026-01-01T00:00:00Z" }, 0],
  ["declines protection", { annotations: { "podseidon.kubewharf.io/protect": "false" } }, 3],
])(
  "a lost protector whose workload %s, before it is restored, is released and does not come back",
  async (...given) => {
    const [, change, replicas] = given;
    await leading(async (core, time) => {
      const made = await lose(core, time);
      const held = core.put("deployments", deployment({ finalizers: [GENERATOR], ...change }, replicas));
      core.show("deployments", "MODIFIED", held);
      await time.advance(2_000);
      const released = core.get("configmaps", "podseidon-released-0");
      expect(released).toHaveProperty(["data", String(made.metadata.uid)]);
      core.forget("deployments", "web");
      core.version += 1;
      core.show("deployments", "DELETED", {
        ...held,
        metadata: { ...held.metadata, resourceVersion: `${core.version}` },
      });
      await time.advance(5_000);
      expect(core.get("podprotectors", "deployment-web")).toBeUndefined();
    });
  },
);

test("a protector of somebody else under the name of a lost one is not looked for in a storm", async () => {
  await leading(async (core, time) => {
    const made = await lose(core, time);
    core.put("podprotectors", { ...made, metadata: { name: "deployment-web", uid: "other" } });
    const annotations = { "podseidon.kubewharf.io/protect": "false" };
    core.show(
      "deployments",
      "MODIFIED",
      core.put("deployments", deployment({ finalizers: [GENERATOR], annotations }, 3)),
    );
    const before = core.reads;
    await time.advance(5_000);
    expect(core.reads - before).toBeLessThanOrEqual(10);
    expect(core.reads - before).toBeGreaterThan(0);
  });
});

test("a cell that was removed, which no watch has shown yet, is not removed again", async () => {
  await leading(async (core, time, events) => {
    await time.advance(500);
    core.show("deployments", "MODIFIED", core.get("deployments", "web"));
    const made = core.get("podprotectors", "deployment-web");
    const annotations = { "podseidon.kubewharf.io/remove-cell-once": "a" };
    const summary = { totalReplicas: 1, aggregatedAvailableReplicas: 1, estimatedAvailableReplicas: 1 };
    const cells = [{ cellID: "a", aggregation: { totalReplicas: 1, availableReplicas: 1 } }];
    const asked = merged(made, { metadata: { annotations }, status: { cells, summary } }) as Stored;
    core.show("podprotectors", "ADDED", core.put("podprotectors", asked));
    await time.advance(500);
    // Any change of the workload.
    core.show("deployments", "MODIFIED", core.put("deployments", core.get("deployments", "web") as Stored));
    await time.advance(500);
    expect(events).toEqual(["held", "created", "cellsRemoved"]);
  });
});

test("what is told of a source is told once, whoever writes its protector meanwhile", async () => {
  await leading(async (core, time, events) => {
    await time.advance(500);
    const made = core.get("podprotectors", "deployment-web") as Stored;
    core.show("podprotectors", "ADDED", made);
    // A webhook, whose write no watch shows yet.
    core.put("podprotectors", merged(made, { status: { cells: [], summary: {} } }) as Stored);
    const held = core.get("deployments", "web") as Stored;
    const metadata = { ...held.metadata, resourceVersion: "190" };
    core.show("deployments", "DELETED", { ...held, metadata });
    await time.advance(3_000);
    expect(events.filter((kind) => kind === "sourceVanished")).toEqual(["sourceVanished"]);
    // It comes back, and vanishes again.
    core.show("deployments", "ADDED", { ...held, metadata: { ...held.metadata, resourceVersion: "191" } });
    await time.advance(3_000);
    core.show("deployments", "DELETED", { ...held, metadata: { ...held.metadata, resourceVersion: "192" } });
    await time.advance(3_000);
    expect(events.filter((kind) => kind === "sourceVanished")).toHaveLength(2);
  });
});

test("a write that a restore of the core has undone before any watch showed it is made again", async () => {
  await leading(async (core, time) => {
    await time.advance(500);
    core.show("deployments", "MODIFIED", core.get("deployments", "web"));
    core.forget("podprotectors", "deployment-web");
    core.version = 50;
    core.expire("podprotectors");
    await time.advance(5_000);
    expect(core.get("podprotectors", "deployment-web")).toBeDefined();
  });
});

test("a protector whose release a restore of the core has undone is maintained", async () => {
  await leading(async (core, time) => {
    await time.advance(500);
    const made = core.get("podprotectors", "deployment-web") as Stored;
    core.show("podprotectors", "ADDED", made);
    const [finalizers, deletionTimestamp] = [[GENERATOR], "2026-01-01T00:00:00Z"];
    core.show("deployments", "MODIFIED", core.put("deployments", deployment({ finalizers, deletionTimestamp }, 0)));
    await time.advance(500);
    expect(core.get("podprotectors", "deployment-web")).toBeUndefined();
    core.version = 50;
    core.put("podprotectors", made);
    core.put("deployments", deployment({ finalizers }, 5));
    for (const resource of ["podprotectors", "deployments"] as const) core.expire(resource);
    await time.advance(5_000);
    expect(core.get("podprotectors", "deployment-web")?.spec).toMatchObject({ minAvailable: 4 });
  });
});
