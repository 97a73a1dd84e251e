import { describe, expect, test } from "vitest";
import {
  admissionReview,
  handler,
  type JsonObject,
  podJson,
  responseOf,
} from "../test/support/webhook/handler-harness.ts";

describe("changes in place", () => {
  const withImage = (image: string, change: { metadata?: JsonObject } = {}): JsonObject => ({
    ...podJson(change),
    spec: { containers: [{ name: "app", image }] },
  });
  const change = (request: JsonObject): string =>
    admissionReview({ operation: "UPDATE", oldObject: withImage("app:1"), object: withImage("app:2"), ...request });

  test.each<[string, JsonObject]>([
    ["of the spec", {}],
    ["of the resources", { subResource: "resize" }],
  ])("%s are disruptions when they restart a container", async (what, request) => {
    const { asked, records, ask } = handler();
    await ask(change(request));
    expect(asked).toMatchObject([{ operation: "UPDATE", pod: { uid: "u", resourceVersion: "5" }, dryRun: false }]);
    expect(asked[0]?.isResize).toBe(what === "of the resources" ? true : undefined);
    expect(records).toMatchObject([{ kind: "change" }]);
  });

  test.each<[string, JsonObject, JsonObject, number]>([
    ["a deadline", {}, { activeDeadlineSeconds: 1 }, 1],
    ["an earlier deadline", { activeDeadlineSeconds: 600 }, { activeDeadlineSeconds: 1 }, 1],
    ["the same deadline", { activeDeadlineSeconds: 600 }, { activeDeadlineSeconds: 600 }, 0],
  ])("that give the pod %s", async (_, before, after, disruptions) => {
    const { asked, ask } = handler();
    const containers = [{ name: "app", image: "app:1" }];
    const podWith = (spec: JsonObject): JsonObject => ({ ...podJson(), spec: { containers, ...spec } });
    await ask(change({ oldObject: podWith(before), object: podWith(after) }));
    const disruption = { operation: "UPDATE", done: "ended by activeDeadlineSeconds" };
    expect(asked).toMatchObject(Array.from({ length: disruptions }, () => disruption));
  });

  test("are allowed when they restart nothing, without asking a protector", async () => {
    const { asked, records, ask } = handler();
    const annotated = withImage("app:1", { metadata: { annotations: { note: "other" } } });
    expect(responseOf(await ask(change({ object: annotated })))).toMatchObject({ allowed: true });
    expect(asked).toEqual([]);
    expect(records).toMatchObject([{ kind: "change", outcome: "restartsNothing" }]);
  });

  const OTHER = { app: "other" };
  test.each<[string, JsonObject, JsonObject, JsonObject | undefined]>([
    [
      "other labels take the pod from its protectors",
      { app: "web" },
      OTHER,
      { labelsAfter: OTHER, done: "relabelled" },
    ],
    ["none are other labels, too", { app: "web" }, {}, { labelsAfter: {}, done: "relabelled" }],
    ["the same labels in another order are no change", { a: "1", b: "2" }, { b: "2", a: "1" }, undefined],
  ])("%s", async (_, before, after, expected) => {
    const { asked, ask } = handler();
    const withLabels = (labels: JsonObject): JsonObject => withImage("app:1", { metadata: { labels } });
    await ask(change({ oldObject: withLabels(before), object: withLabels(after) }));
    expect(asked).toMatchObject(expected === undefined ? [] : [{ operation: "UPDATE", ...expected }]);
  });

  test("that restart a container concern all protectors, whatever labels they change", async () => {
    const { asked, ask } = handler();
    await ask(change({ object: withImage("app:2", { metadata: { labels: OTHER } }) }));
    expect(asked).toMatchObject([{ operation: "UPDATE" }]);
    expect(asked[0]).not.toHaveProperty("labelsAfter");
  });

  test("of a pending pod are pinned, and of another subresource ignored", async () => {
    const pending = { ...withImage("app:1"), status: { phase: "Pending" } };
    const { asked, records, ask } = handler();
    await ask(change({ oldObject: pending }));
    expect(asked).toHaveLength(1);
    await ask(change({ subResource: "ephemeralcontainers" }));
    expect(records.at(-1)).toMatchObject({ kind: "other", outcome: "ignored" });
  });

  test.each<[string, JsonObject, number]>([
    [
      "an image, which a container that has not started will have",
      { containers: [{ name: "app", image: "app:2" }] },
      200,
    ],
    ["but for a deadline, by which the pod ends when it may be available", { activeDeadlineSeconds: 1 }, 500],
  ])("of a pending pod are allowed while no core answers: %s", async (_, spec, status) => {
    const { ask } = handler({ kind: "failed", tag: "core-unavailable", message: "the core is out of reach" });
    const containers = [{ name: "app", image: "app:1" }];
    const pending = { ...podJson(), spec: { containers }, status: { phase: "Pending" } };
    const object = { ...pending, spec: { containers, ...spec } };
    expect(await ask(change({ oldObject: pending, object }))).toMatchObject({ status });
  });

  test("without one of the objects are malformed", async () => {
    const { ask } = handler();
    await expect(ask(change({ object: undefined }))).rejects.toThrow("carries no request.object");
    await expect(ask(change({ oldObject: null }))).rejects.toThrow("carries no request.oldObject");
  });
});
