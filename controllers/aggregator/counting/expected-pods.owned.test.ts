import { expect, test } from "vitest";
import type { ApiRequest, ApiResponse, ApiStream, Transport } from "../../../shared/kube/client/transport.ts";
import { ScriptedStream } from "../../../test/support/kube/scripted-transport.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { ExpectedPods } from "./expected-pods.ts";
import type { TrackedProtector } from "./membership.ts";

const labels = { app: "web" };
const ROLLOUTS = "argoproj.io/v1alpha1/rollouts";

interface Item {
  readonly replicas: number;
  readonly owner?: { readonly apiVersion: string; readonly kind: string; readonly uid: string };
}

/** What these workloads of the cell come to; by the plural of their kind, null where the kind is not served. */
async function expected(items: Readonly<Record<string, readonly Item[] | null>>, scalable: readonly string[] = []) {
  const object = (kind: string, { replicas, owner }: Item, index: number) => ({
    metadata: {
      ...{ name: `w${index}`, namespace: "shop", uid: `${kind}-${index}`, resourceVersion: "5" },
      ...(owner === undefined ? {} : { ownerReferences: [{ ...owner, name: "o", controller: true }] }),
    },
    spec: { replicas, template: { metadata: { labels } } },
  });
  const request = async ({ path }: ApiRequest): Promise<ApiResponse> => {
    const kind = path.split("?")[0]?.split("/").at(-1) ?? "";
    const found = items[kind];
    if (found === null) return { status: 404, headers: {}, body: "404 page not found" };
    const list = {
      metadata: { resourceVersion: "9" },
      items: (found ?? []).map((item, index) => object(kind, item, index)),
    };
    return { status: 200, headers: {}, body: JSON.stringify(list) };
  };
  const stream = async ({ signal }: ApiRequest): Promise<ApiStream> => ({
    ...{ status: 200, headers: {}, chunks: new ScriptedStream().read(signal), close: () => {} },
  });
  const transport: Transport = { request, stream, close: () => {} };
  const time = new VirtualTime();
  const nothing = () => {};
  const pods = new ExpectedPods({
    ...{ transport, ports: time, scalable, namespace: "", onWatch: nothing, onChanged: nothing },
  });
  const tracked: TrackedProtector = {
    id: { core: "core", namespace: "shop", name: "web" },
    protector: {
      metadata: { name: "web", namespace: "shop", uid: "p", resourceVersion: "1" },
      spec: { minAvailable: 0, minReadySeconds: 0, selector: { matchLabels: labels }, countExpectedPods: true },
    },
    pods: new Map(),
    problems: [],
  };
  await time.advance(60_000);
  const found = pods.of(tracked);
  const stopped = pods.stop();
  await time.advance(1_000);
  await stopped;
  return found;
}

const OPERATOR = { apiVersion: "example.com/v1", kind: "Shop", uid: "shop" };

test("a Deployment that an operator's object controls asks for pods beside one that nothing controls", async () => {
  const found = await expected({ deployments: [{ replicas: 3 }, { replicas: 7, owner: OPERATOR }] });
  expect(found).toEqual({ workloads: 2, replicas: 10 });
});

test("a ReplicaSet of a Deployment asks for nothing of its own", async () => {
  const owner = { apiVersion: "apps/v1", kind: "Deployment", uid: "deployments-0" };
  const found = await expected({ deployments: [{ replicas: 3 }], replicasets: [{ replicas: 3, owner }] });
  expect(found).toEqual({ workloads: 1, replicas: 3 });
});

test("a kind of --scalable that this cell does not serve keeps nobody from counting", async () => {
  const found = await expected({ deployments: [{ replicas: 3 }], rollouts: null }, [ROLLOUTS]);
  expect(found).toEqual({ workloads: 1, replicas: 3 });
});
