import { describe, expect, it } from "vitest";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { type ApiRequest, type ApiResponse, type Transport, TransportError } from "../kube/client/transport.ts";
import { sleep } from "../runtime/clock.ts";
import { type EventOutcome, EventRecorder, type ObjectReference } from "./event-recorder.ts";

const POD: ObjectReference = { apiVersion: "v1", kind: "Pod", namespace: "shop", name: "web-1", uid: "u1" };

interface Request {
  readonly method: string;
  readonly path: string;
  readonly body: Record<string, unknown>;
}

type Answer = number | "hang" | "reset";

function setup(
  answer: (request: ApiRequest, count: number) => Answer = ({ method }) => (method === "POST" ? 201 : 200),
) {
  const time = new VirtualTime();
  const requests: Request[] = [];
  const outcomes: EventOutcome[] = [];
  const transport: Transport = {
    async request(request): Promise<ApiResponse> {
      const body: unknown = JSON.parse(request.body ?? "{}");
      requests.push({
        method: request.method,
        path: request.path,
        body: Object.fromEntries(Object.entries(Object(body))),
      });
      const status = answer(request, requests.length);
      if (status === "reset") throw new TransportError("reset", true, "connection reset");
      await sleep(time, status === "hang" ? request.timeoutMs : 1, request.signal);
      if (status === "hang") throw new TransportError("timeout", true, "no answer in time");
      const object =
        status < 300
          ? {}
          : { kind: "Status", code: status, reason: status === 404 ? "NotFound" : "X", details: { name: "event" } };
      return { status, headers: {}, body: JSON.stringify(object) };
    },
    stream: () => Promise.reject(new TransportError("protocol", false, "unused")),
    close: () => {},
  };
  const recorder = new EventRecorder({
    transport,
    ports: time,
    component: "podseidon-webhook",
    onOutcome: (outcome) => outcomes.push(outcome),
  });
  const record = (message: string, regarding = POD, reason = "DeletionRefused"): void =>
    recorder.record({ regarding, type: "Warning", reason, message });
  const counts = (): Record<string, number> => {
    const result: Record<string, number> = {};
    for (const outcome of outcomes) result[outcome] = (result[outcome] ?? 0) + 1;
    return result;
  };
  return { time, recorder, record, requests, counts };
}

describe("event recorder", () => {
  it("writes an Event as kubectl describe expects it", async () => {
    const { time, record, requests, counts } = setup();
    record("the minimum is reached");
    await time.advance(10);
    expect(counts()).toEqual({ created: 1 });
    expect(requests).toEqual([
      {
        method: "POST",
        path: "/api/v1/namespaces/shop/events",
        body: {
          apiVersion: "v1",
          kind: "Event",
          metadata: { namespace: "shop", name: expect.stringMatching(/^web-1\.[0-9a-f]+$/) },
          involvedObject: POD,
          type: "Warning",
          reason: "DeletionRefused",
          message: "the minimum is reached",
          count: 1,
          firstTimestamp: "2026-01-01T00:00:00Z",
          lastTimestamp: "2026-01-01T00:00:00Z",
          source: { component: "podseidon-webhook" },
          reportingComponent: "podseidon-webhook",
        },
      },
    ]);
  });

  it("raises the count of a repeated Event instead of creating another", async () => {
    const { time, record, requests, counts } = setup();
    record("again");
    await time.advance(100);
    await time.advance(5000);
    record("again");
    await time.advance(100);
    // Two pending repeats make one request.
    record("other", { ...POD, name: "web-2" });
    record("again");
    record("again");
    await time.advance(100);
    expect(requests.map(({ method, body }) => [method, body.count])).toEqual([
      ["POST", 1],
      ["PATCH", 2],
      ["POST", 1],
      ["PATCH", 4],
    ]);
    expect(requests[1]?.path).toMatch(/^\/api\/v1\/namespaces\/shop\/events\/web-1\.[0-9a-f]+$/);
    expect(requests[1]?.body).toEqual({ count: 2, message: "again", lastTimestamp: "2026-01-01T00:00:05Z" });
    expect(counts()).toEqual({ created: 2, counted: 3 });
  });

  it("creates an Event again that has expired on the server", async () => {
    const { time, record, requests } = setup(({ method }) => (method === "POST" ? 201 : 404));
    record("again");
    await time.advance(100);
    record("again");
    await time.advance(100);
    expect(requests.map(({ method }) => method)).toEqual(["POST", "PATCH", "POST"]);
  });

  it("combines many different messages of one reason", async () => {
    const { time, record, requests } = setup();
    for (let index = 0; index < 15; index += 1) record(`refused for the ${index}th time`);
    await time.advance(30_000);
    expect(requests).toHaveLength(11);
    expect(requests.at(-1)?.body).toMatchObject({
      message: "(combined from similar events): refused for the 14th time",
      count: 5,
    });
  });

  it("limits one object without touching the others", async () => {
    const { time, record, requests, counts } = setup();
    for (let index = 0; index < 100; index += 1) record("again");
    record("mine", { ...POD, name: "web-2" });
    await time.advance(60_000);
    expect(counts()).toEqual({ created: 2, counted: 24, limited: 75 });
    expect(requests.map(({ body }) => body.count)).toEqual([25, 1]);
    await time.advance(300_000);
    record("again");
    await time.advance(100);
    expect(requests.at(-1)?.method).toBe("PATCH");
  });

  it("has room for those of a namespace, however many another one causes", async () => {
    const { time, record, requests } = setup();
    for (let index = 0; index < 3000; index += 1) record("refused", { ...POD, name: `web-${index}`, uid: `u${index}` });
    for (let index = 0; index < 3; index += 1) record("vanished", { ...POD, namespace: "other", name: `db-${index}` });
    await time.advance(200_000);
    expect(requests).toHaveLength(1000);
    expect(requests.filter(({ path }) => path.includes("/other/"))).toHaveLength(3);
  });

  it("bounds pending Events, and requests per second", async () => {
    const { time, record, requests, counts } = setup();
    for (let index = 0; index < 3000; index += 1) record("refused", { ...POD, name: `web-${index}`, uid: `u${index}` });
    expect(counts().dropped).toBe(2000);
    await time.advance(1000);
    expect(requests.length).toBeLessThanOrEqual(61);
    await time.advance(200_000);
    expect(requests).toHaveLength(1000);
  });

  it.each<{ name: string; answers: Answer[]; requests: number; outcome: EventOutcome }>([
    { name: "a server error that passes", answers: [500, 503, 201], requests: 3, outcome: "created" },
    { name: "a reset that passes", answers: ["reset", 201], requests: 2, outcome: "created" },
    { name: "a namespace that is being deleted", answers: [403], requests: 1, outcome: "failed" },
    { name: "a name that is taken", answers: [409], requests: 1, outcome: "failed" },
    { name: "an outage", answers: ["hang", "hang", "hang", "hang", "hang", 201], requests: 5, outcome: "failed" },
  ])("ends with $outcome after $requests tries at $name", async ({ answers, requests: expected, outcome }) => {
    const { time, record, requests, counts } = setup((_request, count) => answers[count - 1] ?? 201);
    record("x");
    await time.advance(120_000);
    expect(requests).toHaveLength(expected);
    expect(counts()).toEqual({ [outcome]: 1 });
  });

  it("creates one Event, however often the answer of a slow server comes too late", async () => {
    const stored = new Set<unknown>();
    const { time, record, requests, counts } = setup(({ body }, count) => {
      const { name } = Object(JSON.parse(body ?? "")).metadata ?? {};
      if (name === undefined) return 200;
      const answer = stored.has(name) ? 409 : "hang";
      stored.add(name);
      return count < 3 ? "hang" : answer;
    });
    record("again");
    await time.advance(60_000);
    expect([stored.size, counts()]).toEqual([1, { created: 1 }]);
    record("again");
    await time.advance(60_000);
    expect(requests.at(-1)).toMatchObject({ method: "PATCH", body: { count: 2 } });
  });

  it("sends pending Events before it ends, for a limited time", async () => {
    const well = setup();
    well.record("x");
    let stopped = false;
    void well.recorder.stop(5000).then(() => {
      stopped = true;
    });
    await well.time.advance(10);
    expect([stopped, well.counts()]).toEqual([true, { created: 1 }]);
    well.record("late");
    expect(well.counts()).toEqual({ created: 1, dropped: 1 });

    const ill = setup(() => "hang");
    ill.record("x");
    ill.record("y", { ...POD, name: "web-2" });
    stopped = false;
    void ill.recorder.stop(2000).then(() => {
      stopped = true;
    });
    await ill.time.advance(2000);
    expect(stopped).toBe(true);
    expect(ill.counts()).toEqual({ failed: 1, dropped: 1 });
  });

  it("repeats no credential and no long text, and has a namespace for objects without one", async () => {
    const { time, record, requests } = setup();
    record(`Bearer abcdefghijklmnopqrstuvwxyz ${"x".repeat(5000)}`, {
      apiVersion: "v1",
      kind: "Node",
      name: "n".repeat(253),
    });
    await time.advance(10);
    const [request] = requests;
    expect(request?.path).toBe("/api/v1/namespaces/default/events");
    expect(String(request?.body.message)).toMatch(/^Bearer \[redacted\] x{1,1010}\.\.\.$/);
    expect(String(Object(request?.body.metadata).name).length).toBeLessThanOrEqual(253);
  });
});
