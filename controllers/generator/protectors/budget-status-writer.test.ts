import { describe, expect, test } from "vitest";
import { ApiClient } from "../../../shared/kube/client/api-client.ts";
import type { ApiRequest, ApiResponse } from "../../../shared/kube/client/transport.ts";
import type { PodProtector } from "../../../shared/schema/podprotector.ts";
import { makeCell, makeProtector, makeSpec } from "../../../test/support/decide/fixtures.ts";
import { pluginNamed } from "../../../test/support/generator/plugin-named.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { budgetStatus } from "../budgets/budget-status.ts";
import { BudgetStatusWriter } from "./budget-status-writer.ts";
import type { GeneratorEvent } from "./events.ts";
import type { StepContext } from "./steps.ts";

const plugin = pluginNamed("podunavailablebudget");
const PATH = "/apis/policy.kruise.io/v1beta1/namespaces/shop/podunavailablebudgets/web";
const METADATA = { namespace: "shop", name: "web", uid: "b1", resourceVersion: "7", generation: 4 };
const OTHER = { manager: "kruise-manager", operation: "Update", fieldsV1: { "f:status": {} } };
const OWN = { manager: "podseidon-generator", operation: "Update", fieldsV1: { "f:status": {} } };
const SPEC_ONLY = { manager: "kubectl", operation: "Update", fieldsV1: { "f:spec": {} } };
const NOT_SERVED: ApiResponse = { status: 404, headers: {}, body: "404 page not found" };
const UNAVAILABLE: ApiResponse = { status: 503, headers: {}, body: "{}" };
const FORBIDDEN: ApiResponse = { status: 403, headers: {}, body: '{"kind":"Status","reason":"Forbidden"}' };

function counted(available: number): PodProtector {
  return makeProtector([makeCell("cell-1", available)]);
}

/** A writer, a store with one budget, and what it was asked. */
class Store {
  readonly time = new VirtualTime();
  readonly asked: string[] = [];
  readonly events: GeneratorEvent[] = [];
  managedFields: object[] = [];
  uid = METADATA.uid;
  status: unknown;
  /** Instead of taking a write. */
  refusal: ApiResponse | undefined;
  readonly #writer = new BudgetStatusWriter(this.time.clock);

  /** Shows so many available pods; resolves to what comes next. */
  async show(available: number) {
    const { source, context } = this.#work();
    return await this.#writer.show(context, source, counted(available));
  }

  async clear(): Promise<void> {
    const { source, context } = this.#work();
    await this.#writer.clear(context, source);
  }

  #work() {
    const source = plugin.interpret({
      metadata: METADATA,
      spec: { minAvailable: 2, selector: {} },
      status: this.status,
    });
    const api = new ApiClient({ request: (one) => this.#answer(one), stream: () => Promise.reject(), close() {} });
    const calls = { api, timeoutMs: 1000, signal: new AbortController().signal };
    const ports = this.time.process();
    const protectors = { wrote: () => {}, released: () => {} };
    const register = { record: async () => ({ kind: "ok" as const, object: undefined }) };
    const onEvent = (event: GeneratorEvent): number => this.events.push(event);
    const options = { api, ports, protectors, register, timeoutMs: 1000, onEvent };
    const context: StepContext = { options, calls, key: "podunavailablebudget/shop/web", kind: plugin.kind, source };
    return { source, context };
  }

  async #answer({ method, path, body, ignoresManagedFields }: ApiRequest): Promise<ApiResponse> {
    this.asked.push(`${method} ${path.replace(PATH, "")}`);
    if (method === "PUT") {
      if (this.refusal !== undefined) return this.refusal;
      const { metadata, status } = JSON.parse(body ?? "{}");
      if (metadata?.resourceVersion !== METADATA.resourceVersion) throw new Error("no compare-and-swap");
      this.status = status;
    }
    const managedFields = ignoresManagedFields === true ? [] : this.managedFields;
    const object = { metadata: { ...METADATA, uid: this.uid, managedFields }, status: this.status };
    return { status: 200, headers: {}, body: JSON.stringify(object) };
  }
}

const SWAP = ["GET ", "PUT /status?fieldManager=podseidon-generator"];

describe("a status is written", () => {
  test("once, and again two seconds later at the earliest", async () => {
    const store = new Store();
    expect(await store.show(5)).toEqual({ kind: "done" });
    expect(await store.show(5)).toEqual({ kind: "done" });
    expect(store.asked).toEqual(SWAP);
    expect(await store.show(4)).toEqual({ kind: "later", afterMs: 2_000 });
    await store.time.advance(1_500);
    expect(await store.show(3)).toEqual({ kind: "later", afterMs: 500 });
    await store.time.advance(500);
    expect(await store.show(3)).toEqual({ kind: "done" });
    expect(store.asked).toEqual([...SWAP, ...SWAP]);
    expect(store.status).toMatchObject({ observedGeneration: 4, currentAvailable: 3, desiredAvailable: 2 });
  });

  test("over its own, beside managers of other fields", async () => {
    const store = new Store();
    store.managedFields = [SPEC_ONLY, OWN];
    await store.show(5);
    await store.time.advance(2_000);
    await store.show(4);
    expect(store.asked).toEqual([...SWAP, ...SWAP]);
    expect(store.status).toMatchObject({ currentAvailable: 4 });
    expect(store.events.map(({ kind }) => kind)).toEqual(["statusWritten", "statusWritten"]);
  });

  test("not to a newer budget of the same name", async () => {
    const store = new Store();
    store.uid = "b2";
    expect(await store.show(5)).toEqual({ kind: "done" });
    expect(store.asked).toEqual(["GET "]);
  });

  test("not over another manager's, which is looked at again after a minute", async () => {
    const store = new Store();
    store.managedFields = [OTHER];
    store.status = { currentAvailable: 1, desiredAvailable: 1, unavailableAllowed: 0, totalReplicas: 1 };
    expect(await store.show(5)).toEqual({ kind: "done" });
    expect(await store.show(4)).toEqual({ kind: "later", afterMs: 60_000 });
    await store.time.advance(60_000);
    await store.show(4);
    expect(store.asked).toEqual(["GET ", "GET "]);
    expect(store.events).toEqual([
      { kind: "statusLeft", source: "podunavailablebudget/shop/web", manager: "kruise-manager" },
    ]);
  });

  test("at once when the other manager's status was removed", async () => {
    const store = new Store();
    store.managedFields = [OTHER];
    store.status = { currentAvailable: 1, desiredAvailable: 1, unavailableAllowed: 0, totalReplicas: 1 };
    await store.show(5);
    store.managedFields = [];
    store.status = undefined;
    await store.show(5);
    expect(store.asked).toEqual(["GET ", ...SWAP]);
  });

  test.each([
    ["is not served", NOT_SERVED, []],
    ["is forbidden", FORBIDDEN, ["failed"]],
    ["gets no answer", UNAVAILABLE, ["failed"]],
  ])("no more than once a minute where that %s", async (_, refusal, kinds) => {
    const store = new Store();
    store.refusal = refusal;
    await store.show(5);
    expect(await store.show(4)).toEqual({ kind: "later", afterMs: 60_000 });
    expect(store.asked).toEqual(SWAP);
    expect(store.events.map(({ kind }) => kind)).toEqual(kinds);
  });
});

test("what the generator has written is removed, and nothing of others", async () => {
  const store = new Store();
  await store.show(5);
  await store.clear();
  expect(store.status).toBeUndefined();
  await store.clear();
  expect(store.asked).toEqual([...SWAP, ...SWAP]);
  store.status = { currentAvailable: 1, desiredAvailable: 1, unavailableAllowed: 0, totalReplicas: 1 };
  store.managedFields = [OTHER];
  await store.clear();
  expect(store.asked).toEqual([...SWAP, ...SWAP, "GET "]);
});

test("what could not be removed in an outage is removed after it, within the minute, too", async () => {
  const store = new Store();
  await store.show(5);
  store.refusal = UNAVAILABLE;
  await store.clear();
  store.refusal = undefined;
  await store.time.advance(1_000);
  await store.clear();
  expect(store.status).toBeUndefined();
});

describe("the figures", () => {
  test("are of reliable cells, without what is reserved", () => {
    const held = makeCell("cell-2", 3, [], { hold: "EtcdRestored" });
    const protector = makeProtector([makeCell("cell-1", 4), held]);
    expect(budgetStatus(4, protector, undefined)).toMatchObject({
      ...{ currentAvailable: 4, desiredAvailable: 2, unavailableAllowed: 2, totalReplicas: 7 },
    });
    expect(budgetStatus(4, protector, 9)?.totalReplicas).toBe(9);
    // An annotation may say so. An apiserver would refuse the whole status.
    expect(budgetStatus(4, protector, 9_999_999_999)?.totalReplicas).toBe(2_147_483_647);
  });

  test("are not known before a cell has counted the present spec", () => {
    expect(budgetStatus(4, makeProtector([]), 9)).toBeUndefined();
    expect(budgetStatus(4, { metadata: counted(1).metadata, spec: makeSpec() }, 9)).toBeUndefined();
    const { status, ...protector } = counted(5);
    if (status === undefined) throw new Error("no status");
    const older = { ...protector, metadata: { ...protector.metadata, generation: 3 } };
    expect(budgetStatus(4, { ...older, status: { ...status, observedGeneration: 2 } }, 9)).toBeUndefined();
    expect(budgetStatus(4, { ...older, status: { ...status, observedGeneration: 3 } }, 9)).toBeDefined();
  });
});
