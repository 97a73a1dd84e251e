import { describe, expect, test } from "vitest";
import { ApiClient } from "./api-client.ts";
import { type ApiRequest, type ApiResponse, type Transport, TransportError } from "./transport.ts";

class OneAnswer implements Transport {
  readonly requests: ApiRequest[] = [];
  readonly #answer: ApiResponse | TransportError;
  constructor(answer: ApiResponse | TransportError) {
    this.#answer = answer;
  }
  async request(request: ApiRequest): Promise<ApiResponse> {
    this.requests.push(request);
    if (this.#answer instanceof TransportError) throw this.#answer;
    return this.#answer;
  }
  stream(): Promise<never> {
    throw new Error("no streams here");
  }
  close(): void {}
}

const answer = (status: number, body: unknown = {}, headers: Record<string, string> = {}): ApiResponse => ({
  status,
  headers,
  body: typeof body === "string" ? body : JSON.stringify(body),
});
const status = (code: number, rest: object = {}): object => ({ kind: "Status", code, message: `m${code}`, ...rest });
const notFound = (name: string): object => status(404, { reason: "NotFound", details: { name, kind: "pods" } });
const CALL = { timeoutMs: 1000 };

const identity = { namespace: "ns", name: "a b", uid: "u1", resourceVersion: "7" };
const protector = {
  metadata: { namespace: "ns", name: "a b", uid: "u1", resourceVersion: "8" },
  spec: { minAvailable: 1, minReadySeconds: 0, selector: {} },
};
const emptyStatus = {
  cells: [],
  summary: { totalReplicas: 0, aggregatedAvailableReplicas: 0, estimatedAvailableReplicas: 0 },
};

describe("results", () => {
  test.each([
    ["200", answer(200, { a: 1 }), { kind: "ok", object: { a: 1 } }],
    ["409", answer(409, status(409)), { kind: "conflict" }],
    ["404 of the object", answer(404, notFound("x")), { kind: "gone" }],
    ["404 of the API", answer(404, "404 page not found"), { kind: "unavailable", sent: false, status: 404 }],
    ["404 of something else", answer(404, status(404, { reason: "NotFound" })), { kind: "unavailable", sent: false }],
    ["422", answer(422, status(422, { reason: "Invalid" })), { kind: "rejected", status: 422 }],
    ["403", answer(403, status(403, { reason: "Forbidden" })), { kind: "rejected", status: 403 }],
    ["408 of a proxy", answer(408, "Request Timeout"), { kind: "unavailable", sent: false, status: 408 }],
    ["401", answer(401, status(401)), { kind: "unavailable", sent: false, status: 401 }],
    [
      "429 for a day",
      answer(429, status(429), { "retry-after": "86400" }),
      { kind: "unavailable", sent: false, retryAfterMs: 60_000 },
    ],
    [
      "503 for ages",
      answer(503, status(503, { details: { retryAfterSeconds: 1e300 } })),
      { kind: "unavailable", retryAfterMs: 1_000 },
    ],
    ["429", answer(429, status(429), { "retry-after": "3" }), { kind: "unavailable", sent: false, retryAfterMs: 3000 }],
    [
      "429 of a webhook",
      answer(429, status(429, { details: { retryAfterSeconds: 1 } })),
      { kind: "unavailable", retryAfterMs: 1000 },
    ],
    ["500", answer(500, status(500)), { kind: "unavailable", sent: true, status: 500 }],
    [
      "500 of a webhook that could not be called",
      answer(
        500,
        status(500, { message: 'Internal error occurred: failed calling webhook "a.example.com": failed to' }),
      ),
      { kind: "unavailable", sent: false, status: 500 },
    ],
    [
      "500 that quotes such a failure",
      answer(500, status(500, { message: 'etcd said: failed calling webhook "a.example.com"' })),
      { kind: "unavailable", sent: true },
    ],
    ["503 in HTML", answer(503, "<html>"), { kind: "unavailable", sent: true, status: 503 }],
    ["200 that is no JSON", answer(200, "{"), { kind: "unavailable", sent: true, status: 200 }],
    ["a lost connection", new TransportError("reset", true, "lost"), { kind: "unavailable", sent: true }],
    ["no connection", new TransportError("refused", false, "none"), { kind: "unavailable", sent: false }],
  ])("%s", async (_, given, expected) => {
    const client = new ApiClient(new OneAnswer(given));
    expect(await client.get("/x", (raw) => raw, CALL)).toMatchObject(expected);
  });

  test("an object that does not parse is unavailable, with the reason", async () => {
    const client = new ApiClient(new OneAnswer(answer(200, { spec: {} })));
    expect(await client.getPodProtector("ns", "x", CALL)).toMatchObject({ kind: "unavailable", sent: true });
  });
});

describe("requests", () => {
  test("a status update has uid and version as preconditions, and holds nothing else", async () => {
    const transport = new OneAnswer(answer(200, protector));
    const result = await new ApiClient(transport).putPodProtectorStatus(identity, emptyStatus, CALL);
    expect(result).toMatchObject({ kind: "ok", object: protector });
    const [request] = transport.requests;
    expect(request).toMatchObject({
      method: "PUT",
      path: "/apis/podseidon.kubewharf.io/v1alpha1/namespaces/ns/podprotectors/a%20b/status",
      timeoutMs: 1000,
    });
    expect(JSON.parse(request?.body ?? "")).toEqual({
      apiVersion: "podseidon.kubewharf.io/v1alpha1",
      kind: "PodProtector",
      metadata: identity,
      status: emptyStatus,
    });
  });

  test.each([
    ["an object that is gone is gone", answer(404, notFound("a b")), { kind: "gone" }],
    ["an object that is there has no status any more", answer(200, protector), { kind: "rejected", status: 404 }],
    [
      "an object that is another one by now is written again",
      answer(200, { ...protector, metadata: { ...protector.metadata, uid: "u2" } }),
      { kind: "conflict" },
    ],
    ["an object that can't be read may be there", answer(503, status(503)), { kind: "unavailable" }],
  ])("a status that is not found: %s", async (_, read, expected) => {
    const transport: Transport = {
      request: async ({ method }) => (method === "PUT" ? answer(404, notFound("a b")) : read),
      stream: async () => expect.unreachable(),
      close: () => undefined,
    };
    const result = await new ApiClient(transport).putPodProtectorStatus(identity, emptyStatus, CALL);
    expect(result).toMatchObject(expected);
  });

  test("pods are read live", async () => {
    const transport = new OneAnswer(answer(200, { metadata: { namespace: "ns", name: "p" } }));
    await new ApiClient(transport).getPod("ns", "p", (raw) => raw, CALL);
    expect(transport.requests[0]?.path).toBe("/api/v1/namespaces/ns/pods/p");
  });

  test.each([
    ["another name", { namespace: "ns", name: "b" }],
    ["another namespace", { namespace: "other", name: "a b" }],
  ])("an answer about an object of %s is no answer", async (_, metadata) => {
    const api = new ApiClient(new OneAnswer(answer(200, { ...protector, metadata: { ...identity, ...metadata } })));
    const results = await Promise.all([
      api.getPod("ns", "a b", (raw) => raw, CALL),
      api.getPodProtector("ns", "a b", CALL),
      api.putPodProtectorStatus(identity, emptyStatus, CALL),
    ]);
    for (const result of results) expect(result).toMatchObject({ kind: "unavailable", sent: true });
  });

  test("a 404 about another object says nothing of this one", async () => {
    const api = new ApiClient(new OneAnswer(answer(404, notFound("x"))));
    const results = await Promise.all([
      api.getPod("ns", "a b", (raw) => raw, CALL),
      api.getPodProtector("ns", "a b", CALL),
      api.putPodProtectorStatus(identity, emptyStatus, CALL),
    ]);
    for (const result of results) expect(result).toMatchObject({ kind: "unavailable", sent: false, status: 404 });
  });

  // kube-apiserver decodes the path, cuts slashes off its end, and lists all pods of the namespace.
  test.each([
    ["ns", ""],
    ["ns", "/"],
    ["ns", "//"],
    ["", ""],
    ["ns", ".."],
    ["ns", "p/log"],
    ["n/s", "p"],
  ])("no pod has the name %j/%j, and no request is made", async (namespace, name) => {
    const transport = new OneAnswer(answer(200, { kind: "PodList", items: [] }));
    const result = await new ApiClient(transport).getPod(namespace, name, (raw) => raw, CALL);
    expect(transport.requests.map(({ path }) => path)).toEqual([]);
    expect(result).toEqual({ kind: "gone" });
  });

  test("a name with half a surrogate pair is requested like any other", async () => {
    const transport = new OneAnswer(answer(404, notFound("p\ufffd")));
    const result = await new ApiClient(transport).getPod("ns", "p\ud800", (raw) => raw, CALL);
    expect(result.kind).toBe("gone");
    expect(transport.requests[0]?.path).toBe("/api/v1/namespaces/ns/pods/p%EF%BF%BD");
  });

  test("dry runs, patches and preconditions", async () => {
    const transport = new OneAnswer(answer(200));
    const client = new ApiClient(transport);
    await client.create("/things", { a: 1 }, (raw) => raw, { ...CALL, dryRun: true, fieldManager: "me" });
    await client.patch("/things/x", "application/json-patch+json", [], (raw) => raw, CALL);
    await client.delete("/things/x", { ...CALL, preconditions: { uid: "u" } });
    const [created, patched, deleted] = transport.requests;
    expect(created?.path).toBe("/things?dryRun=All&fieldManager=me");
    expect([patched?.path, patched?.contentType]).toEqual(["/things/x", "application/json-patch+json"]);
    expect(JSON.parse(deleted?.body ?? "")).toMatchObject({ preconditions: { uid: "u" } });
  });
});
