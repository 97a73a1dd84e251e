import { expect, test } from "vitest";
import { FORCE_DELETE_ANNOTATION } from "../../shared/schema/annotations.ts";
import { parsePod } from "../../shared/schema/pod.ts";
import { requestFor } from "./disruption-dry-run.ts";

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
  expect(requestFor(pod, "delete", "cell", NOW_MS).forced).toBe(forced);
});
