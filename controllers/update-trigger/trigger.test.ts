import { describe, expect, test } from "vitest";
import { isForked, parseTriggerMark, type TriggerMark } from "../../shared/decide/settling/trigger-mark.ts";
import type { ApiResult } from "../../shared/kube/client/api-result.ts";
import {
  PART_OF_LABEL,
  UPDATE_TRIGGER_ANNOTATION,
  UPDATE_TRIGGER_COUNTER_ANNOTATION,
} from "../../shared/schema/annotations.ts";
import { parsePod } from "../../shared/schema/pod.ts";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { type TriggerEvent, UpdateTrigger } from "./trigger.ts";

interface Stored {
  metadata: {
    namespace: string;
    name: string;
    uid: string;
    resourceVersion: string;
    labels: Record<string, string>;
    annotations: Record<string, string>;
  };
  spec: { schedulerName?: string; nodeName?: string };
  status?: { phase: string } | undefined;
}

/** An apiserver with at most one pod. */
class FakePods {
  pod: Stored | undefined;
  version = 100;
  failing = false;
  forbidsStatus = false;
  readonly calls: string[] = [];

  getPod = async <T>(_namespace: string, _name: string, parse: (raw: unknown) => T): Promise<ApiResult<T>> => {
    this.calls.push("get");
    if (this.failing) return { kind: "unavailable", error: new Error("down"), sent: false };
    return this.pod === undefined ? { kind: "gone" } : { kind: "ok", object: parse(structuredClone(this.pod)) };
  };

  create = async <T>(_path: string, body: unknown, parse: (raw: unknown) => T): Promise<ApiResult<T>> => {
    this.calls.push("create");
    if (this.failing) return { kind: "unavailable", error: new Error("down"), sent: true };
    if (this.pod !== undefined) return { kind: "conflict", message: "exists" };
    const given = structuredClone(body) as Stored;
    this.pod = { ...given, metadata: { ...given.metadata, uid: `uid-${this.version}`, resourceVersion: this.next() } };
    return { kind: "ok", object: parse(structuredClone(this.pod)) };
  };

  patch = async <T>(path: string, _type: string, body: unknown, parse: (raw: unknown) => T): Promise<ApiResult<T>> => {
    const isStatus = path.endsWith("/status");
    this.calls.push(isStatus ? "complete" : "patch");
    if (isStatus && this.forbidsStatus) return { kind: "rejected", status: 403, message: "not yours" };
    if (this.failing) return { kind: "unavailable", error: new Error("down"), sent: true };
    const { metadata, status } = body as Pick<Stored, "metadata" | "status">;
    if (this.pod === undefined) return { kind: "gone" };
    const own = this.pod.metadata;
    if (own.uid !== metadata.uid || own.resourceVersion !== metadata.resourceVersion)
      return { kind: "conflict", message: "changed" };
    if (isStatus) this.pod.status = status;
    Object.assign(own.labels, metadata.labels);
    Object.assign(own.annotations, metadata.annotations);
    own.resourceVersion = this.next();
    return { kind: "ok", object: parse(structuredClone(this.pod)) };
  };

  next(): string {
    return String(++this.version);
  }

  get counter(): number {
    return Number(this.pod?.metadata.annotations[UPDATE_TRIGGER_COUNTER_ANNOTATION]);
  }

  get mark(): TriggerMark {
    const mark = parseTriggerMark(this.pod?.metadata.annotations);
    if (mark === undefined) throw new Error("there is no mark");
    return mark;
  }

  put(counter: number | undefined, spec: Stored["spec"] = { schedulerName: "do-not-schedule" }): void {
    const annotations = counter === undefined ? {} : { [UPDATE_TRIGGER_COUNTER_ANNOTATION]: String(counter) };
    const metadata = { namespace: "ns", name: "podseidon-update-trigger", uid: "old", labels: {}, annotations };
    this.pod = { metadata: { ...metadata, resourceVersion: this.next() }, spec };
  }
}

function rig(
  time = new VirtualTime({ seed: 3 }),
  pods = new FakePods(),
): { time: VirtualTime; pods: FakePods; events: TriggerEvent[]; trigger: UpdateTrigger; round(): Promise<unknown> } {
  const events: TriggerEvent[] = [];
  const trigger = new UpdateTrigger({
    client: pods,
    ports: time,
    namespace: "ns",
    name: "podseidon-update-trigger",
    labels: { cell: "a" },
    intervalMs: 1000,
    onEvent: (event) => events.push(event),
  });
  return { time, pods, events, trigger, round: () => trigger.round(new AbortController().signal) };
}

const kinds = (events: readonly TriggerEvent[]): string[] =>
  events.map((event) => ("action" in event ? `${event.kind} ${event.action}` : event.kind));

describe("the dummy pod", () => {
  test("is created when it is missing; nothing schedules or protects it", async () => {
    const { pods, round } = rig();
    await round();
    const pod = pods.pod;
    expect(pods.calls).toEqual(["get", "create", "complete"]);
    expect(pod?.status?.phase).toBe("Succeeded");
    expect(pod?.spec.schedulerName).toBe("do-not-schedule");
    expect(pod?.metadata.labels).toEqual({ cell: "a", [PART_OF_LABEL]: "podseidon" });
    expect(pod?.metadata.annotations[UPDATE_TRIGGER_ANNOTATION]).toBe("2026-01-01T00:00:00.000Z");
    expect(parsePod(pod).scheduled).toBe(false);
  });

  test("is patched as before where its status may not be written, which is said once", async () => {
    const { pods, events, round } = rig();
    pods.forbidsStatus = true;
    for (let times = 0; times < 3; times++) await round();
    expect(kinds(events)).toEqual(["done create", "failed complete", "done update", "done update"]);
  });

  test("is adopted and labelled when upstream has created it", async () => {
    const { pods, events, round } = rig();
    pods.put(undefined);
    await round();
    expect(kinds(events)).toEqual(["done adopt", "done complete", "done update"]);
    expect(pods.counter).toBe(1);
    expect(pods.pod?.metadata.labels[PART_OF_LABEL]).toBe("podseidon");
  });

  test("counts up with each patch", async () => {
    const { pods, round } = rig();
    pods.put(41);
    await round();
    await round();
    await round();
    expect(pods.counter).toBe(44);
  });

  test("is created again after a deletion, and its counter goes on", async () => {
    const { pods, events, round } = rig();
    await round();
    const before = pods.counter;
    pods.pod = undefined;
    await round();
    expect(kinds(events)).toEqual(["done create", "done complete", "done create", "done complete"]);
    expect(pods.counter).toBeGreaterThan(before);
  });

  test("counts on from the stored counter, so that a restore of etcd shows", async () => {
    const { pods, events, round } = rig();
    pods.put(10);
    await round();
    await round();
    expect(pods.counter).toBe(12);
    pods.put(5);
    await round();
    expect(events).toContainEqual({ kind: "wentBack", from: 12, to: 5 });
    expect(pods.counter).toBe(6);
  });

  test("shows a restore even to a reader that comes after the counter has passed its old value", async () => {
    const { pods, round } = rig();
    await round();
    await round();
    const snapshot = structuredClone(pods.pod);
    await round();
    const seen = pods.mark;
    expect(isForked(seen, seen)).toBe(false);
    pods.pod = snapshot;
    if (pods.pod) pods.pod.metadata.resourceVersion = pods.next();
    for (let more = 0; more < 5; more++) await round();
    expect(pods.counter).toBeGreaterThan(seen.counter);
    expect(isForked(seen, pods.mark)).toBe(true);
  });

  test.each(["the same", "another"])("shows no restore when %s process creates it again", async (process) => {
    const { time, pods, events, round } = rig();
    await round();
    await round();
    const seen = pods.mark;
    pods.pod = undefined;
    await time.advance(60_000);
    const next = process === "another" ? rig(time, pods) : { round, events };
    await next.round();
    expect(kinds(next.events).at(-1)).toBe("done complete");
    expect(isForked(seen, pods.mark)).toBe(false);
  });

  test("is read again and patched when another client has changed it", async () => {
    const { pods, round } = rig();
    await round();
    const before = pods.counter;
    if (pods.pod) pods.pod.metadata.resourceVersion = pods.next();
    await round();
    expect(pods.counter).toBe(before + 1);
    expect(pods.calls.slice(3)).toEqual(["patch", "get", "patch"]);
  });

  test.each([
    ["a scheduler could take it", { schedulerName: "default-scheduler" }],
    ["it is on a node", { schedulerName: "do-not-schedule", nodeName: "node-1" }],
  ])("is reported when %s", async (_, spec) => {
    const { pods, events, round } = rig();
    pods.put(1, spec);
    await round();
    expect(kinds(events)).toContain("schedulable");
  });
});

describe("failures", () => {
  test("are reported, back off, and end with the outage", async () => {
    const { time, pods, events, trigger } = rig();
    pods.failing = true;
    const stop = new AbortController();
    const running = trigger.run(stop.signal);
    await time.advance(10_000);
    const failures = events.filter((event) => event.kind === "failed").length;
    expect(failures).toBeGreaterThan(1);
    expect(failures).toBeLessThanOrEqual(10);
    pods.failing = false;
    await time.advance(30_000);
    expect(pods.counter).toBeGreaterThan(0);
    const patches = pods.calls.filter((call) => call === "patch").length;
    await time.advance(10_000);
    const later = pods.calls.filter((call) => call === "patch").length - patches;
    expect(later).toBeGreaterThanOrEqual(9);
    expect(later).toBeLessThanOrEqual(12);
    stop.abort();
    await running;
  });
});

test("a process that leads no more shows no age of its last patch, which others make", async () => {
  const { time, trigger, pods } = rig();
  const term = async (): Promise<void> => {
    const stop = new AbortController();
    const running = trigger.run(stop.signal);
    await time.advance(5_000);
    expect(trigger.lastDoneMs).toBeGreaterThan(0);
    stop.abort();
    await running;
    expect(trigger.lastDoneMs).toBeUndefined();
  };
  await term();
  // What others have written is read first.
  pods.calls.length = 0;
  await term();
  expect(pods.calls.slice(0, 2)).toEqual(["get", "patch"]);
});
