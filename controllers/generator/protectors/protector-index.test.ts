import { expect, test } from "vitest";
import type { Informer, InformerHandler } from "../../../shared/kube/informer/informer.ts";
import { GENERATOR_FINALIZER } from "../../../shared/schema/annotations.ts";
import type { PodProtector } from "../../../shared/schema/podprotector.ts";
import { pluginNamed } from "../../../test/support/generator/plugin-named.ts";
import { type ProtectionSource, sourceKey } from "../sources/protection-source.ts";
import { alternativeName, labelValue } from "./names.ts";
import { plan } from "./plan.ts";
import { newProtector } from "./protector.ts";
import { ProtectorIndex } from "./protector-index.ts";

const plugin = pluginNamed("deployment");

function protector(version: string, owner = "web", minAvailable = 8): PodProtector {
  return {
    metadata: {
      namespace: "shop",
      name: "deployment-web",
      uid: "p1",
      resourceVersion: version,
      ownerReferences: [{ apiVersion: "apps/v1", kind: "Deployment", name: owner, uid: "u1", controller: true }],
    },
    spec: { minAvailable, minReadySeconds: 0, selector: {} },
  };
}

/** A watch whose events the test makes. */
class Watched implements Informer<PodProtector> {
  readonly #objects = new Map<string, PodProtector>();
  readonly #handlers: InformerHandler<PodProtector>[] = [];
  position: string | undefined;
  readonly synced = true;
  readonly lastContactMs = undefined;

  get size(): number {
    return this.#objects.size;
  }
  get(key: string): PodProtector | undefined {
    return this.#objects.get(key);
  }
  values(): Iterable<PodProtector> {
    return this.#objects.values();
  }
  subscribe(handler: InformerHandler<PodProtector>): () => void {
    this.#handlers.push(handler);
    return () => {};
  }
  /** An empty list. */
  listNothing(position: string): void {
    this.#objects.clear();
    this.position = position;
    for (const handler of this.#handlers) {
      handler.relisted?.(position);
      handler.advanced?.(position);
    }
  }
  /** The stream delivers `deployment-web` as it is at `position`. */
  deliver(after: PodProtector | undefined, position: string): void {
    const before = this.#objects.get("shop/deployment-web");
    if (after === undefined) this.#objects.delete("shop/deployment-web");
    else this.#objects.set("shop/deployment-web", after);
    this.position = position;
    for (const handler of this.#handlers) {
      if (before !== undefined || after !== undefined) handler.changed?.(before, after, false);
      handler.advanced?.(position);
    }
  }
}

function setUp() {
  const watched = new Watched();
  const changed: string[] = [];
  const vanished: PodProtector[] = [];
  const index = new ProtectorIndex(watched, [plugin], {
    changed: (key) => changed.push(key),
    vanished: (one) => vanished.push(one),
  });
  return { watched, changed, vanished, index };
}

const minimums = (index: ProtectorIndex, name = "web"): number[] =>
  index.of(`deployment/shop/${name}`).map(({ spec }) => spec.minAvailable);

test("a watched protector is found by its source, whose change is reported", () => {
  const { watched, index, changed } = setUp();
  watched.deliver(protector("5"), "5");
  expect(minimums(index)).toEqual([8]);
  watched.deliver(undefined, "6");
  expect(minimums(index)).toEqual([]);
  expect([...index.sources()]).toEqual([]);
  expect(changed).toEqual(["deployment/shop/web", "deployment/shop/web"]);
});

test.each(["before the list", "after the list"])(
  "an own write that is gone before the watch shows it counts as vanished: its response comes %s",
  (order) => {
    const { watched, index, changed, vanished } = setUp();
    watched.deliver(undefined, "4");
    const written = protector("5");
    if (order === "before the list") {
      index.wrote(written);
      watched.listNothing("6");
    } else {
      watched.listNothing("6");
      index.wrote(written);
    }
    expect([minimums(index), changed, vanished]).toEqual([[], ["deployment/shop/web"], [written]]);
  },
);

test("a protector with a new owner is found by that, and both sources change", () => {
  const { watched, index, changed } = setUp();
  watched.deliver(protector("5"), "5");
  watched.deliver(protector("6", "other"), "6");
  expect([minimums(index), minimums(index, "other")]).toEqual([[], [8]]);
  expect(changed.slice(1)).toEqual(["deployment/shop/web", "deployment/shop/other"]);
});

test("an own write is seen before the watch delivers it, and only until then", () => {
  const { watched, index } = setUp();
  watched.deliver(undefined, "4");
  index.wrote(protector("5"));
  expect(minimums(index)).toEqual([8]);
  watched.deliver(protector("5"), "5");
  watched.deliver(protector("7", "web", 9), "7");
  expect(minimums(index)).toEqual([9]);
});

test("an own write that the watch has passed changes nothing", () => {
  const { watched, index } = setUp();
  watched.deliver(protector("7", "web", 9), "7");
  index.wrote(protector("5"));
  expect(minimums(index)).toEqual([9]);
});

test("an own write stays while the watch is behind it", () => {
  const { watched, index } = setUp();
  watched.deliver(protector("5"), "5");
  index.wrote(protector("9", "web", 9));
  watched.deliver(protector("7", "web", 7), "7");
  expect(minimums(index)).toEqual([9]);
});

test("a protector that was made in the place of a released one stays when the watch shows the end of that", () => {
  const { watched, index } = setUp();
  watched.deliver(protector("5"), "5");
  index.released(protector("5"));
  const { metadata, ...rest } = protector("9", "web", 9);
  const next = { ...rest, metadata: { ...metadata, uid: "p2" } };
  index.wrote(next);
  watched.deliver(undefined, "7");
  expect(minimums(index)).toEqual([9]);
  watched.deliver(next, "9");
  expect(minimums(index)).toEqual([9]);
});

test("an own write that was undone is forgotten when the watch has passed it", () => {
  const { watched, index } = setUp();
  watched.deliver(undefined, "4");
  index.wrote(protector("5"));
  watched.deliver(undefined, "8");
  expect(minimums(index)).toEqual([]);
  expect([...index.sources()]).toEqual([]);
});

test("a released protector is gone at once, a new one of its name is not", () => {
  const { watched, index } = setUp();
  watched.deliver(protector("5"), "5");
  index.released(protector("5"));
  expect(minimums(index)).toEqual([]);
  watched.deliver(protector("6"), "6");
  expect(minimums(index)).toEqual([]);
  watched.deliver(undefined, "7");
  const next = protector("8", "web", 9);
  watched.deliver({ ...next, metadata: { ...next.metadata, uid: "p2" } }, "8");
  expect(minimums(index)).toEqual([9]);
});

test("a protector that was created and released before the watch shows it leaves nothing behind", () => {
  const { watched, index } = setUp();
  watched.deliver(undefined, "4");
  index.wrote(protector("5"));
  index.released(protector("5"));
  expect(minimums(index)).toEqual([]);
  watched.deliver(undefined, "8");
  expect([...index.sources()]).toEqual([]);
});

test("a protector without owner is found by its source, even if the name is too long for a label", () => {
  const { watched, index } = setUp();
  const name = "web-".repeat(20);
  const own = { namespace: "shop", name, uid: "u1", resourceVersion: "3", finalizers: [], deleting: false };
  const required = { name: "deployment-web", spec: protector("5").spec, derivation: "" };
  const source: ProtectionSource = { ...own, decision: "Protected", protectors: [required] };
  const { labels, finalizers } = newProtector(plugin.kind, source, required, "deployment-web").metadata;
  const { ownerReferences: _, ...metadata } = protector("5").metadata;
  const present = { ...protector("5"), metadata: { ...metadata, labels, finalizers: [...finalizers] } };
  watched.deliver(present, "5");
  const identity = { plugin: "deployment", namespace: "shop", name };
  const protectors = index.of(sourceKey(identity));
  const steps = plan({
    kind: plugin.kind,
    plugins: [plugin],
    identity,
    source: { ...source, finalizers: [GENERATOR_FINALIZER] },
    protectors,
    lost: [],
    named: (one) => index.get(`shop/${one}`),
  });
  expect(steps.map(({ kind }) => kind)).toEqual(["update"]);
});

test("a protector whose owner has a name like the shortened label stays with that owner", () => {
  const { watched, index } = setUp();
  const name = "web-".repeat(20);
  watched.deliver(protector("5", labelValue(name)), "5");
  expect(minimums(index, name)).toEqual([]);
});

test("a released protector that finalizers of others keep has its name, until it is gone", () => {
  const { watched, index } = setUp();
  const key = "shop/deployment-web";
  const held = (...finalizers: string[]): PodProtector => {
    const { metadata, ...rest } = protector("2");
    return { ...rest, metadata: { ...metadata, finalizers } };
  };
  expect(index.isHeldByOthers(key)).toBe(false);
  watched.deliver(held(GENERATOR_FINALIZER, "example.com/audit"), "2");
  expect(index.isHeldByOthers(key)).toBe(false);
  index.released(held(GENERATOR_FINALIZER, "example.com/audit"));
  expect([index.get(key), index.isHeldByOthers(key)]).toEqual([undefined, true]);
  watched.deliver(undefined, "3");
  expect(index.isHeldByOthers(key)).toBe(false);
  // The watch has yet to show that it is gone.
  watched.deliver(held(GENERATOR_FINALIZER), "4");
  index.released(held(GENERATOR_FINALIZER));
  expect(index.isHeldByOthers(key)).toBe(false);
});

test("a source of the same name does not wait for the end of a released protector that others keep", () => {
  const source = plugin.interpret({
    metadata: { namespace: "shop", name: "web", uid: "u2", resourceVersion: "7" },
    spec: { replicas: 4, selector: { matchLabels: { app: "web" } }, template: {} },
  });
  const identity = { plugin: plugin.name, namespace: "shop", name: "web" };
  const facts = { kind: plugin.kind, plugins: [plugin], identity, source, protectors: [], lost: [] };
  const steps = plan({ ...facts, named: () => undefined, isTaken: (name) => name === "deployment-web" });
  const name = alternativeName("deployment-web", sourceKey(identity));
  expect(steps).toMatchObject([{ kind: "addSourceFinalizer" }, { kind: "create", object: { metadata: { name } } }]);
});

test.each(["before its release was answered", "after that"])(
  "what is known of a released protector is forgotten when the watch has shown its end: %s",
  (when) => {
    const { watched, index } = setUp();
    watched.deliver(protector("5"), "5");
    index.told.set("p1", "deleting");
    if (when === "after that") index.released(protector("5"));
    watched.deliver(undefined, "7");
    if (when !== "after that") index.released(protector("5"));
    expect([index.isReleased(protector("5")), index.told.size]).toEqual([false, 0]);
  },
);
