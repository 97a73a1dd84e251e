import { describe, expect, test } from "vitest";
import type { ApiResult } from "../../../shared/kube/client/api-result.ts";
import { page, ScriptedStream, ScriptedTransport } from "../../../test/support/kube/scripted-transport.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { NamespaceMarker } from "./namespace-marker.ts";

const MARK = "podseidon.kubewharf.io/enforced-namespace";

function namespace(name: string, resourceVersion: string, labels: Readonly<Record<string, string>> = {}): unknown {
  return { metadata: { name, uid: `uid-${name}`, resourceVersion, labels } };
}

interface Harness {
  readonly time: VirtualTime;
  readonly marker: NamespaceMarker;
  readonly watch: ScriptedStream;
  readonly patches: { readonly path: string; readonly body: unknown }[];
  readonly events: unknown[];
  /** Responses to patches, in order; `ok` without one. */
  readonly responses: ApiResult<unknown>[];
  /** What a first count in some namespace had to wait before the namespaces were listed. */
  readonly unlistedMs: number;
  /** Namespaces with protectors. */
  readonly having: Set<string>;
}

async function start(...listed: readonly unknown[]): Promise<Harness> {
  const time = new VirtualTime({ seed: 1 });
  const transport = new ScriptedTransport();
  const watch = new ScriptedStream();
  transport.lists.push(page("100", listed));
  transport.watches.push(watch);
  const patches: Harness["patches"] = [];
  const events: unknown[] = [];
  const responses: ApiResult<unknown>[] = [];
  const having = new Set<string>();
  const marker = new NamespaceMarker({
    transport,
    api: {
      async patch<T>(path: string, _type: string, body: unknown, parse: (raw: unknown) => T): Promise<ApiResult<T>> {
        patches.push({ path, body });
        const response = responses.shift();
        return response === undefined || response.kind === "ok" ? { kind: "ok", object: parse({}) } : response;
      },
    },
    ports: time,
    namespace: "",
    timeoutMs: 1_000,
    hasProtectors: (name) => having.has(name),
    mayWrite: () => true,
    onWatch: () => {},
    onEvent: (event) => events.push(event),
  });
  const unlistedMs = marker.firstCountInMs("unlisted");
  await time.advance(10);
  return { unlistedMs, time, marker, watch, patches, events, responses, having };
}

test("a namespace with a protector gets its mark, and a first count waits 10 s from the sight of it", async () => {
  const { time, marker, watch, patches } = await start(
    namespace("shop", "5", { team: "blue" }),
    namespace("quiet", "6"),
  );
  expect(marker.firstCountInMs("shop")).toBeGreaterThan(0);
  await time.advance(1_000);
  expect(patches).toEqual([
    { path: "/api/v1/namespaces/shop", body: { metadata: { uid: "uid-shop", labels: { [MARK]: "true" } } } },
  ]);
  expect(marker.firstCountInMs("shop")).toBeGreaterThan(0);
  watch.event("MODIFIED", namespace("shop", "101", { [MARK]: "true" }));
  await time.advance(0);
  expect(marker.firstCountInMs("shop")).toBe(10_000);
  await time.advance(9_999);
  expect(marker.firstCountInMs("shop")).toBe(1);
  await time.advance(1);
  expect(marker.firstCountInMs("shop")).toBe(0);
});

test("a mark that somebody takes off again and again is put back without a storm of writes", async () => {
  const { time, marker, watch, patches } = await start(namespace("shop", "5"));
  marker.firstCountInMs("shop");
  await time.advance(5_000);
  const before = patches.length;
  watch.event("MODIFIED", namespace("shop", "101", { [MARK]: "true" }));
  await time.advance(5_000);
  watch.event("MODIFIED", namespace("shop", "102"));
  await time.advance(10);
  expect(patches.length - before).toBe(1);
  for (let version = 103; version < 1_103; version += 2) {
    watch.event("MODIFIED", namespace("shop", String(version), { [MARK]: "true" }));
    await time.advance(10);
    watch.event("MODIFIED", namespace("shop", String(version + 1)));
    await time.advance(10);
  }
  expect(patches.length - before).toBeGreaterThanOrEqual(9);
  expect(patches.length - before).toBeLessThanOrEqual(12);
});

test("a mark that is gone is put back, and time begins anew", async () => {
  const { time, marker, watch, patches } = await start(namespace("shop", "5", { [MARK]: "true" }));
  marker.firstCountInMs("shop");
  await time.advance(20_000);
  expect([marker.firstCountInMs("shop"), patches.length]).toEqual([0, 0]);
  watch.event("MODIFIED", namespace("shop", "101", { [MARK]: "false" }));
  await time.advance(100);
  expect([marker.firstCountInMs("shop") > 0, patches.length]).toEqual([true, 1]);
});

test("a namespace that is known not to be there holds nothing up, and is marked once it is there", async () => {
  const { time, marker, watch, patches, unlistedMs } = await start();
  expect(unlistedMs).toBeGreaterThan(0);
  expect(marker.firstCountInMs("shop")).toBe(0);
  await time.advance(1_000);
  expect(patches).toEqual([]);
  watch.event("ADDED", namespace("shop", "101"));
  await time.advance(100);
  expect(patches).toHaveLength(1);
  expect(marker.firstCountInMs("shop")).toBeGreaterThan(0);
});

test("the pods of a namespace that the watch does not show yet wait for it, and for its mark", async () => {
  const { time, marker, watch } = await start();
  expect([marker.firstCountInMs("shop", false), marker.firstCountInMs("shop", true)]).toEqual([0, 500]);
  watch.event("ADDED", namespace("shop", "101", { [MARK]: "true" }));
  await time.advance(0);
  expect(marker.firstCountInMs("shop", true)).toBe(10_000);
});

test("the name of a namespace whose protector went before the namespaces were listed is not kept", async () => {
  const { time, watch, patches } = await start();
  watch.event("ADDED", namespace("unlisted", "101"));
  await time.advance(1_000);
  expect(patches).toEqual([]);
});

describe("a namespace that went and comes back", () => {
  const comeBack = async ({ time, watch }: Harness): Promise<void> => {
    watch.event("ADDED", namespace("shop", "103"));
    await time.advance(1_000);
  };

  test.each(["first its protector", "first the namespace"])(
    "is not marked without a protector: %s went",
    async (order) => {
      const harness = await start(namespace("shop", "5", { [MARK]: "true" }));
      const { time, marker, watch, patches, having } = harness;
      having.add("shop");
      marker.firstCountInMs("shop");
      const protectorGone = (): void => {
        having.delete("shop");
        marker.forget("shop");
      };
      if (order === "first its protector") protectorGone();
      watch.event("DELETED", namespace("shop", "102"));
      await time.advance(100);
      if (order !== "first its protector") protectorGone();
      await comeBack(harness);
      expect(patches).toEqual([]);
    },
  );

  test("is marked where a core still has its protector", async () => {
    const harness = await start(namespace("shop", "5", { [MARK]: "true" }));
    harness.having.add("shop");
    harness.marker.firstCountInMs("shop");
    harness.watch.event("DELETED", namespace("shop", "102"));
    await harness.time.advance(100);
    await comeBack(harness);
    expect(harness.patches).toHaveLength(1);
  });

  test("a namespace that stays is marked again without its protector, which may be lost", async () => {
    const { time, marker, watch, patches } = await start(namespace("shop", "5", { [MARK]: "true" }));
    marker.firstCountInMs("shop");
    marker.forget("shop");
    watch.event("MODIFIED", namespace("shop", "101"));
    await time.advance(1_000);
    expect(patches).toHaveLength(1);
  });
});

test("a patch that is refused is told, and repeated", async () => {
  const { time, marker, patches, events, responses } = await start(namespace("shop", "5"));
  responses.push({ kind: "unavailable", error: new Error("forbidden"), sent: true });
  marker.firstCountInMs("shop");
  await time.advance(60_000);
  expect(events).toContainEqual({ kind: "namespaceNotMarked", namespace: "shop", message: "forbidden" });
  expect(patches.length).toBeGreaterThan(1);
});
