import { expect, test } from "vitest";
import { sourceFindings } from "./source-findings.ts";

const NOW_MS = Date.parse("2026-11-29T10:00:00Z");

const event = (name: string, message: string): unknown => ({
  involvedObject: { kind: "StatefulSet", namespace: "shop", name },
  lastTimestamp: "2026-11-29T09:59:00Z",
  message,
});

test("a source that the core refuses is named before those of which nothing is promised", () => {
  const small = ["db-1", "db-2"].map((name) => event(name, "none of its pods is promised (replicas 1 - ...)"));
  const [finding] = sourceFindings([...small, event("web", "exceeded quota: objects")], NOW_MS);
  expect(finding?.found).toBe("3 sources can't be protected as asked: StatefulSet shop/web, and 2 more");
  expect(finding?.advice).toMatch(/^StatefulSet shop\/web, 60s ago: exceeded quota: objects\./);
});
