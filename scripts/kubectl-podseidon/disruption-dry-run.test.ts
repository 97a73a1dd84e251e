import { expect, test } from "vitest";
import { FORCE_DELETE_ANNOTATION } from "../../shared/schema/annotations.ts";
import { parsePod } from "../../shared/schema/pod.ts";
import { makeProtector } from "../../test/support/decide/fixtures.ts";
import { covering, requestFor } from "./disruption-dry-run.ts";

const NOW_MS = Date.parse("2026-01-01T00:00:00Z");

test.each([
  ["no annotation", undefined, false],
  ["a plain value", "yes", true],
  ["a claim that lasts", '{"until":"2026-02-01T00:00:00Z","reason":"broken node"}', true],
  ["a claim without an end", '{"reason":"broken node"}', true],
  ["a claim that has expired", '{"until":"2025-12-31T00:00:00Z"}', false],
  ["a claim that can't be read", "{", false],
])("the force-delete annotation counts as the webhook counts it: %s", (_, value, forced) => {
  const annotations = value === undefined ? {} : { [FORCE_DELETE_ANNOTATION]: value };
  const metadata = { namespace: "shop", name: "web-0", uid: "u", resourceVersion: "1", annotations };
  const pod = parsePod({ metadata, spec: {}, status: { phase: "Running" } });
  expect(requestFor(pod, "delete", "cell", NOW_MS)).toMatchObject({ operation: "DELETE", forced });
  expect(requestFor(pod, "evict", "cell", NOW_MS)).toMatchObject({ operation: "EVICT", forced });
});

test("the protectors of a pod are those that select it, in its namespace, and do not ignore it", () => {
  const metadata = { namespace: "shop", name: "web-0", uid: "u", resourceVersion: "1", labels: { app: "web" } };
  const pod = parsePod({ metadata, spec: {}, status: { phase: "Running" } });
  const selector = { matchLabels: { app: "web" } };
  const protector = (name: string, spec: object, namespace = "shop") => {
    const made = makeProtector([], { selector, ...spec });
    return { ...made, metadata: { ...made.metadata, namespace, name } };
  };
  // Part of a selector that can't be read matches, as for the webhook.
  const unreadable = { ...selector, matchExpressions: [{ key: "x", operator: "Like" }] };
  const all = [
    protector("own", {}),
    protector("elsewhere", {}, "bank"),
    protector("other", { selector: { matchLabels: { app: "db" } } }),
    protector("ignores", { ignoredPodSelector: selector }),
    protector("ignores-others", { ignoredPodSelector: { matchLabels: { app: "db" } } }),
    protector("unreadable", { selector: unreadable }),
  ];
  const found = covering(all, pod).map((one) => one.metadata.name);
  expect(found).toEqual(["own", "ignores-others", "unreadable"]);
});
