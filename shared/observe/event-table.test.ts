import { describe, expect, test } from "vitest";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import type { EventNote } from "./event-recorder.ts";
import { counted, limitLines, observeEvents, unlessRepeated } from "./event-table.ts";
import { createLog } from "./log.ts";
import { Metrics } from "./metrics.ts";

type PodEvent =
  | { readonly kind: "seen" | "gone"; readonly pod: string }
  | { readonly kind: "failed"; readonly pod: string; readonly tag: "timeout" | "refused" };

function setup() {
  const lines: { level: string; msg: string; pod?: string }[] = [];
  const notes: EventNote[] = [];
  const metrics = new Metrics();
  const log = createLog({
    component: "test",
    level: "debug",
    destination: { write: (line) => lines.push(JSON.parse(line)) },
  });
  const onEvent = observeEvents<PodEvent>(
    { log, events: { record: (note) => notes.push(note) } },
    {
      seen: { level: "debug", message: "Saw a pod" },
      gone: { count: counted(metrics, { name: "gone_total", help: "Pods that are gone.", of: () => ({}) }) },
      failed: {
        line: ({ tag }) => (tag === "timeout" ? ["warn", "No response"] : ["error", "Refused"]),
        fields: ({ pod }) => (pod === "quiet" ? undefined : { pod }),
        count: counted(metrics, {
          name: "failures_total",
          help: "Failures by kind.",
          labels: { tag: ["timeout", "refused"] },
          of: ({ tag }) => ({ tag }),
        }),
        note: ({ pod }) => ({
          regarding: { apiVersion: "v1", kind: "Pod", name: pod },
          type: "Warning",
          reason: "Failed",
          message: "failed",
        }),
      },
    },
  );
  return { lines, notes, metrics, onEvent };
}

describe("a table of events", () => {
  test("logs the fields of the event under its row's level and message", () => {
    const { lines, onEvent } = setup();
    onEvent({ kind: "seen", pod: "a" });
    onEvent({ kind: "failed", pod: "b", tag: "refused" });
    expect(lines).toMatchObject([
      { level: "debug", msg: "Saw a pod", pod: "a" },
      { level: "error", msg: "Refused", pod: "b" },
    ]);
    expect(lines[0]).not.toHaveProperty("kind");
    expect(lines[1]).not.toHaveProperty("tag");
  });

  test("writes no line for a row without a level, and none without fields", () => {
    const { lines, onEvent } = setup();
    onEvent({ kind: "gone", pod: "a" });
    onEvent({ kind: "failed", pod: "quiet", tag: "timeout" });
    expect(lines).toEqual([]);
  });

  test("counts with labels that exist from the start, and records Kubernetes Events", async () => {
    const { metrics, notes, onEvent } = setup();
    onEvent({ kind: "gone", pod: "a" });
    onEvent({ kind: "failed", pod: "quiet", tag: "timeout" });
    const { body } = await metrics.render();
    expect(body).toContain("podseidon_gone_total 1\n");
    expect(body).toContain('podseidon_failures_total{tag="timeout"} 1\n');
    expect(body).toContain('podseidon_failures_total{tag="refused"} 0\n');
    expect(notes.map(({ regarding }) => regarding.name)).toEqual(["quiet"]);
  });
});

test("a line that repeats the one before is suppressed", () => {
  const fields = unlessRepeated();
  expect(["a", "a", "b", "a"].map((text) => fields(text, { text }))).toEqual([
    { text: "a" },
    undefined,
    { text: "b" },
    { text: "a" },
  ]);
});

test("lines of one key are limited, and the next one tells how many were suppressed", async () => {
  const time = new VirtualTime();
  const limited = limitLines(time.clock, 1000);
  expect(limited("a", {})).toEqual({ more: 0 });
  expect(limited("b", {})).toEqual({ more: 0 });
  expect([limited("a", {}), limited("a", {})]).toEqual([undefined, undefined]);
  await time.advance(1000);
  expect(limited("a", {})).toEqual({ more: 2 });
});
