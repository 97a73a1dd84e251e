import { expect, test } from "vitest";
import type { ApiRequest, ApiResponse, ApiStream, Transport } from "../../../shared/kube/client/transport.ts";
import { JSON_TYPE, ScriptedStream } from "../../../test/support/kube/scripted-transport.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { ExpectedPods } from "./expected-pods.ts";
import type { TrackedProtector } from "./membership.ts";

const INT32_MAX = 2_147_483_647;
const labels = { app: "web" };
const POOLS = "fleet.example.com/v1/pools";
const TRACKED: TrackedProtector = {
  id: { core: "core", namespace: "shop", name: "web" },
  protector: {
    metadata: { name: "web", namespace: "shop", uid: "p", resourceVersion: "1" },
    spec: { minAvailable: 0, minReadySeconds: 0, selector: { matchLabels: labels }, countExpectedPods: true },
  },
  pods: new Map(),
  problems: [],
};

interface Item {
  readonly replicas: unknown;
  readonly owner?: { readonly apiVersion: string; readonly kind: string; readonly uid: string };
  readonly resourceVersion?: string;
  readonly status?: unknown;
  /** Null for an object without a pod template. */
  readonly podLabels?: Readonly<Record<string, string>> | null;
}

/**
 * The workloads of a cell by the plural of their kind; null where the kind is not served; "mixed up" where a proxy
 * answers with an empty list of another kind.
 */
type Workloads = Readonly<Record<string, readonly Item[] | null | "down" | "mixed up" | "forbidden">>;

const FORBIDDEN = JSON.stringify({ kind: "Status", code: 403, reason: "Forbidden", message: "no role" });

function objectOf(kind: string, item: Item, index: number) {
  const { replicas, owner, status, resourceVersion = "5", podLabels = labels } = item;
  const ownerReferences = owner && [{ ...owner, name: "o", controller: true }];
  const template = podLabels === null ? {} : { template: { metadata: { labels: podLabels } } };
  return {
    metadata: { name: `w${index}`, namespace: "shop", uid: `${kind}-${index}`, resourceVersion, ownerReferences },
    spec: { replicas, ...template },
    status,
  };
}

/** Counts what the workloads ask for, which the test may change. */
class Cell {
  readonly time = new VirtualTime();
  workloads: Workloads;
  /** How often the number may have changed. */
  changes = 0;
  #version = "9";
  readonly #streams = new Map<string, ScriptedStream>();
  readonly #pods: ExpectedPods;

  constructor(workloads: Workloads) {
    this.workloads = workloads;
    const kindOf = ({ path }: ApiRequest): string => path.split("?")[0]?.split("/").at(-1) ?? "";
    const request = async (asked: ApiRequest): Promise<ApiResponse> => {
      const kind = kindOf(asked);
      const found = this.workloads[kind];
      if (found === null) return { status: 404, headers: {}, body: "404 page not found" };
      if (found === "forbidden") return { status: 403, headers: {}, body: FORBIDDEN };
      if (found === "down") return { status: 500, headers: {}, body: "" };
      const isMixedUp = found === "mixed up";
      const items = isMixedUp ? [] : (found ?? []).map((item, index) => objectOf(kind, item, index));
      const mixedUp = isMixedUp ? { kind: "SecretList" } : {};
      const body = JSON.stringify({ ...mixedUp, metadata: { resourceVersion: this.#version }, items });
      return { status: 200, headers: {}, body };
    };
    const stream = async (asked: ApiRequest): Promise<ApiStream> => {
      const scripted = new ScriptedStream();
      this.#streams.set(kindOf(asked), scripted);
      return { status: 200, headers: JSON_TYPE, chunks: scripted.read(asked.signal), close: () => {} };
    };
    const transport: Transport = { request, stream, close: () => {} };
    const options = { transport, ports: this.time, scalable: [POOLS], namespace: "" };
    this.#pods = new ExpectedPods({ ...options, onWatch: () => {}, onChanged: () => this.changes++ });
  }

  get expected() {
    return this.#pods.of(TRACKED);
  }

  get expectedElsewhere() {
    return this.#pods.of({ ...TRACKED, id: { ...TRACKED.id, namespace: "other" } });
  }

  /** The watch tells of the first pool; a list has it, unless it is deleted. */
  async tell(type: "MODIFIED" | "DELETED", pool: Item & { readonly resourceVersion: string }): Promise<void> {
    this.#version = pool.resourceVersion;
    this.workloads = { ...this.workloads, pools: type === "DELETED" ? [] : [pool] };
    this.#streams.get("pools")?.event(type, objectOf("pools", pool, 0));
    await this.time.advance(100);
  }

  async tellOf(kind: string, item: Item & { readonly resourceVersion: string }): Promise<void> {
    this.#streams.get(kind)?.event("MODIFIED", objectOf(kind, item, 0));
    await this.time.advance(100);
  }

  async relist(): Promise<void> {
    this.#streams.get("pools")?.event("ERROR", { kind: "Status", code: 410, message: "too old" });
    await this.time.advance(15_000);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const stopped = this.#pods.stop();
    await this.time.advance(1_000);
    await stopped;
  }
}

/** What these workloads come to. */
async function expected(workloads: Workloads, afterMs = 1_000) {
  await using cell = new Cell(workloads);
  await cell.time.advance(afterMs);
  return cell.expected;
}

const asking = (counts: readonly number[]): Item[] => counts.map((replicas) => ({ replicas }));

// A status with another number is refused as a whole, and the counts of the cell would stay as they are for ever. Who
// may create Deployments can ask for that many: a paused one makes no pod. The CRD of a pool may allow any number.
test.each<[string, readonly number[], readonly number[], number]>([
  ["the sum", [3, 4], [2], 9],
  ["the greatest number, where the sum is greater", [INT32_MAX, INT32_MAX], [], INT32_MAX],
  ["a whole number", [], [1.5], 2],
  ["none taken off by a workload that asks for fewer than none", [3], [-3], 3],
])(
  "the pods that workloads ask for are a number that a status can have: %s",
  async (_, deployments, pools, replicas) => {
    const found = await expected({ deployments: asking(deployments), pools: asking(pools) });
    expect(found).toEqual({ workloads: deployments.length + pools.length, replicas });
  },
);

test("a Deployment that an operator's object controls asks for pods beside one that nothing controls", async () => {
  const owner = { apiVersion: "example.com/v1", kind: "Shop", uid: "shop" };
  const found = await expected({ deployments: [{ replicas: 3 }, { replicas: 7, owner }] });
  expect(found).toEqual({ workloads: 2, replicas: 10 });
});

test("a ReplicaSet of a Deployment asks for nothing of its own", async () => {
  const owner = { apiVersion: "apps/v1", kind: "Deployment", uid: "deployments-0" };
  const found = await expected({ deployments: [{ replicas: 3 }], replicasets: [{ replicas: 3, owner }] });
  expect(found).toEqual({ workloads: 1, replicas: 3 });
});

// A Rollout with a workloadRef has no pod template: the ReplicaSets that it controls have it.
test.each([null, { app: "other" }])(
  "what a workload controls counts where its own template says %o",
  async (podLabels) => {
    const owner = { apiVersion: POOLS.slice(0, -"/pools".length), kind: "Pool", uid: "pools-0" };
    const found = await expected({ pools: [{ replicas: 3, podLabels }], replicasets: [{ replicas: 3, owner }] });
    expect(found).toEqual({ workloads: 1, replicas: 3 });
  },
);

// With maxUnavailable 1, a StatefulSet of three would lose all its pods while only these were left out of the number.
test("a DaemonSet asks for a pod on each of its nodes, beside other workloads", async () => {
  const none = { desiredNumberScheduled: 0, observedGeneration: 1 };
  const daemonsets = [{ desiredNumberScheduled: 4 }, none].map((status) => ({ replicas: undefined, status }));
  expect(await expected({ statefulsets: asking([3]), daemonsets })).toEqual({ workloads: 3, replicas: 7 });
  expect(await expected({ daemonsets })).toEqual({ workloads: 0, replicas: 0 });
});

// Created again, it would take the pods of all its nodes out of the number, which stays as it is while unknown.
test.each([undefined, { desiredNumberScheduled: 0 }, { desiredNumberScheduled: 0, observedGeneration: 0 }])(
  "a DaemonSet whose controller has not counted its nodes makes the number unknown: %j",
  async (status) => {
    const daemonsets = [{ replicas: undefined, status }];
    expect(await expected({ statefulsets: asking([3]), daemonsets })).toBe("Unknown");
    expect(await expected({ daemonsets })).toEqual({ workloads: 0, replicas: 0 });
  },
);

test("a DaemonSet on no node is told of once its controller has counted", async () => {
  await using cell = new Cell({ statefulsets: asking([3]), daemonsets: [{ replicas: undefined }] });
  await cell.time.advance(1_000);
  expect(cell.expected).toBe("Unknown");
  const { changes } = cell;
  await cell.tellOf("daemonsets", { replicas: undefined, status: { observedGeneration: 1 }, resourceVersion: "15" });
  expect(cell.changes).toBe(changes + 1);
  expect(cell.expected).toEqual({ workloads: 2, replicas: 3 });
});

test.each(["Ready", { desiredNumberScheduled: "3 of 4" }])(
  "a custom resource may have any status: %j",
  async (status) => {
    const found = await expected({ deployments: asking([3]), pools: [{ replicas: 2, status }] });
    expect(found).toEqual({ workloads: 2, replicas: 5 });
  },
);

test("a cell whose role does not allow to list DaemonSets counts without them", async () => {
  const allowed = { statefulsets: asking([3]), daemonsets: "forbidden" } as const;
  expect(await expected(allowed)).toBe("Unknown");
  expect(await expected(allowed, 600_000)).toEqual({ workloads: 1, replicas: 3 });
  expect(await expected({ statefulsets: "forbidden" }, 600_000)).toBe("Unknown");
});

test("a kind of --scalable that this cell does not serve keeps nobody from counting", async () => {
  const found = await expected({ deployments: [{ replicas: 3 }], pools: null }, 60_000);
  expect(found).toEqual({ workloads: 1, replicas: 3 });
});

test("a list of another kind, which a proxy has mixed up, takes no workload out of the number", async () => {
  const mixedUp = { deployments: "mixed up", statefulsets: asking([3]) } as const;
  expect(await expected(mixedUp)).toBe("Unknown");
});

test("the number is unknown while a kind is not listed, and workloads of other namespaces don't count", async () => {
  await using cell = new Cell({ deployments: [{ replicas: 3 }], pools: "down" });
  expect(cell.expected).toBe("Unknown");
  await cell.time.advance(120_000);
  expect(cell.expected).toBe("Unknown");
  const { changes } = cell;
  cell.workloads = { ...cell.workloads, pools: null };
  await cell.time.advance(240_000);
  expect(cell.changes).toBe(changes + 1);
  expect(cell.expected).toEqual({ workloads: 1, replicas: 3 });
  expect(cell.expectedElsewhere).toEqual({ workloads: 0, replicas: 0 });
});

test("the number follows each change of what a workload asks for, and of nothing else", async () => {
  await using cell = new Cell({ deployments: [{ replicas: 3 }], pools: [{ replicas: 5 }] });
  await cell.time.advance(1_000);
  expect(cell.expected).toEqual({ workloads: 2, replicas: 8 });
  const owner = { apiVersion: "apps/v1", kind: "Deployment", uid: "deployments-0" };
  const podLabels = { app: "other" };
  let version = 15;
  for (const [pool, workloads, replicas, isTold] of [
    [{ replicas: 5 }, 2, 8, false],
    [{ replicas: 6 }, 2, 9, true],
    [{ replicas: 6, owner }, 1, 3, true],
    [{ replicas: null }, 2, 4, true],
    [{ replicas: 1, podLabels }, 1, 3, true],
    [{ replicas: 7, podLabels }, 1, 3, false],
    [{ replicas: 7 }, 2, 10, true],
  ] as const) {
    const { changes } = cell;
    await cell.tell("MODIFIED", { ...pool, resourceVersion: `${++version}` });
    expect([cell.expected, cell.changes - changes]).toEqual([{ workloads, replicas }, Number(isTold)]);
  }
});

test("a workload that can't be read any more stays as it was last known, also in a list", async () => {
  await using cell = new Cell({ pools: [{ replicas: 5 }] });
  await cell.time.advance(1_000);
  expect(cell.expected).toEqual({ workloads: 1, replicas: 5 });
  await cell.tell("MODIFIED", { replicas: "five", resourceVersion: "16" });
  await cell.relist();
  expect(cell.expected).toEqual({ workloads: 1, replicas: 5 });
});

test("a workload that can't be read is gone once it is deleted", async () => {
  await using cell = new Cell({ pools: [{ replicas: 5 }] });
  await cell.time.advance(1_000);
  expect(cell.expected).toEqual({ workloads: 1, replicas: 5 });
  await cell.tell("MODIFIED", { replicas: "five", resourceVersion: "16" });
  await cell.tell("DELETED", { replicas: "five", resourceVersion: "17" });
  expect(cell.expected).toEqual({ workloads: 0, replicas: 0 });
});
