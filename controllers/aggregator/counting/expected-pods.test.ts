import { expect, test } from "vitest";
import type { ApiRequest, ApiResponse, ApiStream, Transport } from "../../../shared/kube/client/transport.ts";
import { ScriptedStream } from "../../../test/support/kube/scripted-transport.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { ExpectedPods } from "./expected-pods.ts";
import type { TrackedProtector } from "./membership.ts";

const INT32_MAX = 2_147_483_647;
const labels = { app: "web" };
const POOLS = "fleet.example.com/v1/pools";

/** What workloads come to that ask for so many pods: Deployments, and custom resources, whose CRD may allow any. */
async function expected(deployments: readonly number[], pools: readonly number[] = []) {
  const object = (replicas: number, index: number) => ({
    metadata: { name: `w${index}`, namespace: "shop", uid: `u${index}`, resourceVersion: "5" },
    spec: { replicas, template: { metadata: { labels } } },
  });
  const request = async ({ path }: ApiRequest): Promise<ApiResponse> => {
    const counts = path.includes("/deployments") ? deployments : path.includes("/pools") ? pools : [];
    const list = { metadata: { resourceVersion: "9" }, items: counts.map(object) };
    return { status: 200, headers: {}, body: JSON.stringify(list) };
  };
  const stream = async ({ signal }: ApiRequest): Promise<ApiStream> => ({
    ...{ status: 200, headers: {}, chunks: new ScriptedStream().read(signal), close: () => {} },
  });
  const transport: Transport = { request, stream, close: () => {} };
  const time = new VirtualTime();
  const nothing = () => {};
  const pods = new ExpectedPods({
    ...{ transport, ports: time, scalable: [POOLS], namespace: "", onWatch: nothing, onChanged: nothing },
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
  await time.advance(1_000);
  const found = pods.of(tracked);
  const stopped = pods.stop();
  await time.advance(1_000);
  await stopped;
  return found;
}

// A status with another number is refused as a whole, and the counts of the cell would stay as they are for ever. Who
// may create Deployments can ask for that many: a paused one makes no pod.
test.each<[string, readonly number[], readonly number[], number]>([
  ["the sum", [3, 4], [2], 9],
  ["the greatest number, where the sum is greater", [INT32_MAX, INT32_MAX], [], INT32_MAX],
  ["a whole number", [], [1.5], 2],
  ["none taken off by a workload that asks for fewer than none", [3], [-3], 3],
])(
  "the pods that workloads ask for are a number that a status can have: %s",
  async (_, deployments, pools, replicas) => {
    expect(await expected(deployments, pools)).toEqual({ workloads: deployments.length + pools.length, replicas });
  },
);
