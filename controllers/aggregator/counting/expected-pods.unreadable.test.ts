import { expect, test } from "vitest";
import type { ApiRequest, ApiResponse, ApiStream, Transport } from "../../../shared/kube/client/transport.ts";
import { ScriptedStream } from "../../../test/support/kube/scripted-transport.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { ExpectedPods } from "./expected-pods.ts";
import type { TrackedProtector } from "./membership.ts";

const labels = { app: "web" };
const POOLS = "fleet.example.com/v1/pools";
const pool = (replicas: unknown, resourceVersion: string) => ({
  metadata: { name: "web", namespace: "shop", uid: "u", resourceVersion },
  spec: { replicas, template: { metadata: { labels } } },
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

/** Pools, of which there is one, that soon can't be read any more. */
function watched() {
  let [version, items] = ["5", [pool(5, "5")]];
  let pools = new ScriptedStream();
  const request = async ({ path }: ApiRequest): Promise<ApiResponse> => {
    const list = { metadata: { resourceVersion: version }, items: path.includes("/pools") ? items : [] };
    return { status: 200, headers: {}, body: JSON.stringify(list) };
  };
  const stream = async ({ path, signal }: ApiRequest): Promise<ApiStream> => {
    const read = new ScriptedStream();
    if (path.includes("/pools")) pools = read;
    return { status: 200, headers: {}, chunks: read.read(signal), close: () => {} };
  };
  const transport: Transport = { request, stream, close: () => {} };
  const time = new VirtualTime();
  const expected = new ExpectedPods({
    ...{ transport, ports: time, scalable: [POOLS], namespace: "", onWatch: () => {}, onChanged: () => {} },
  });
  const send = async (type: string, replicas: unknown, at: string): Promise<void> => {
    [version, items] = [at, type === "DELETED" ? [] : [pool(replicas, at)]];
    pools.event(type, pool(replicas, at));
    await time.advance(100);
  };
  const relist = async (): Promise<void> => {
    pools.event("ERROR", { kind: "Status", code: 410, message: "too old" });
    await time.advance(15_000);
  };
  const end = async (): Promise<void> => {
    const stopped = expected.stop();
    await time.advance(1_000);
    await stopped;
  };
  return { time, expected, send, relist, end };
}

test("a workload that can't be read any more stays as it was last known, also in a list", async () => {
  const { time, expected, send, relist, end } = watched();
  await time.advance(1_000);
  expect(expected.of(tracked)).toEqual({ workloads: 1, replicas: 5 });
  await send("MODIFIED", "five", "6");
  await relist();
  expect(expected.of(tracked)).toEqual({ workloads: 1, replicas: 5 });
  await end();
});

test("a workload that can't be read is gone once it is deleted", async () => {
  const { time, expected, send, end } = watched();
  await time.advance(1_000);
  expect(expected.of(tracked)).toEqual({ workloads: 1, replicas: 5 });
  await send("MODIFIED", "five", "6");
  await send("DELETED", "five", "7");
  expect(expected.of(tracked)).toEqual({ workloads: 0, replicas: 0 });
  await end();
});
