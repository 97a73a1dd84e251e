import { describe, expect, test } from "vitest";
import { ObjectStore } from "../kube/informer/object-store.ts";
import { GENERATOR_FINALIZER, RELEASED_ANNOTATION } from "../schema/annotations.ts";
import type { PodProtector } from "../schema/podprotector.ts";
import { LostProtectorsBySource } from "./lost-protectors-by-source.ts";

function rig() {
  const watched = new ObjectStore<PodProtector>({
    uidOf: ({ metadata }) => metadata.uid,
    versionOf: ({ metadata }) => metadata.resourceVersion,
    onHandlerError: (error) => {
      throw error;
    },
  });
  const recorded = new Set<string>();
  const lost = new LostProtectorsBySource({
    watched,
    isRecorded: ({ metadata }) => recorded.has(metadata.uid),
    sourceOf: ({ metadata }) => `deployment/${metadata.namespace}/web`,
  });
  return { watched, lost, recorded, names: () => lost.of("deployment/shop/web").map(({ metadata }) => metadata.uid) };
}

function protector(metadata: Partial<PodProtector["metadata"]> = {}): PodProtector {
  return {
    metadata: {
      name: "web",
      namespace: "shop",
      uid: "u1",
      resourceVersion: "5",
      finalizers: [GENERATOR_FINALIZER],
      ...metadata,
    },
    spec: { minAvailable: 1, minReadySeconds: 0, selector: {} },
  };
}

describe("an absent protector", () => {
  test.each<[string, PodProtector, readonly string[], readonly string[]]>([
    ["without a release is lost", protector(), [], ["u1"]],
    ["with a mark is not lost", protector({ annotations: { [RELEASED_ANNOTATION]: "x" } }), [], []],
    ["that was made by hand is not lost", protector({ finalizers: [] }), [], []],
    ["whose release is recorded is not lost", protector(), ["u1"], []],
  ])("%s", (_name, object, recorded, expected) => {
    const { watched, recorded: register, names } = rig();
    for (const uid of recorded) register.add(uid);
    watched.upsert("shop/web", object, "5");
    watched.remove("shop/web", "", "6");
    expect(names()).toEqual(expected);
  });

  test("whose release was answered after that is no longer lost", () => {
    const { watched, names, lost } = rig();
    watched.upsert("shop/web", protector(), "5");
    watched.remove("shop/web", "", "6");
    lost.released(protector({ uid: "u0" }));
    expect(names()).toEqual(["u1"]);
    lost.released(protector());
    expect([names(), lost.size]).toEqual([[], 0]);
  });

  test("is forgotten when it is restored or released", () => {
    const { watched, names, recorded, lost } = rig();
    watched.upsert("shop/web", protector(), "5");
    watched.remove("shop/web", "", "6");
    watched.upsert("shop/web", protector({ uid: "u2" }), "7");
    expect(names()).toEqual([]);
    watched.remove("shop/web", "", "8");
    expect(names()).toEqual(["u2"]);
    recorded.add("u2");
    expect(names()).toEqual([]);
    expect(lost.size).toBe(0);
  });

  test("of a namespace that has most gives way to one of another", () => {
    const { lost, names } = rig();
    for (let one = 0; one < 50_000; one++) lost.lost(protector({ namespace: "tenant", name: `web-${one}` }));
    lost.lost(protector());
    expect(names()).toEqual(["u1"]);
    expect(lost.size).toBe(50_000);
    expect(lost.of("deployment/tenant/web")).toHaveLength(49_999);
  });

  test("that is large takes the room of many", () => {
    const { lost } = rig();
    const annotations = { large: "x".repeat(250_000) };
    for (let one = 0; one < 1_000; one++) lost.lost(protector({ name: `web-${one}`, annotations }));
    expect(lost.size).toBeLessThan(850);
  });
});
