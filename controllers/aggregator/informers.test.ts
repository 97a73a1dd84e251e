import { expect, test } from "vitest";
import type { ApiResponse } from "../../shared/kube/client/transport.ts";
import { TransportError } from "../../shared/kube/client/transport.ts";
import { ShardedReflector } from "../../shared/kube/informer/sharded-reflector.ts";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { watchPods } from "./informers.ts";

type Context = Parameters<typeof watchPods>[0];

/** A context as far as pods need it. */
function contextWith(answer: () => Promise<ApiResponse>): Context {
  return {
    ports: new VirtualTime(),
    transport: { request: answer, stream: () => Promise.reject(new Error("nothing is watched")), close() {} },
    flags: { namespace: "", podSelector: "", cellId: "cell", podShards: 4, coreTimeout: 1000 },
    log: { warn: () => undefined },
  };
}

const listed = (metadata: object) => async (): Promise<ApiResponse> => ({
  ...{ status: 200, headers: {} },
  body: JSON.stringify({ metadata, items: [] }),
});

test.each<[string, () => Promise<ApiResponse>, boolean]>([
  ["offers them", listed({ shardInfo: { selector: "x" } }), true],
  ["does not offer them", listed({}), false],
  ["rejects them", async () => ({ status: 400, headers: {}, body: "" }), false],
  ["gives no answer", () => Promise.reject(new TransportError("refused", false, "refused")), true],
  ["is overloaded", async () => ({ status: 503, headers: {}, body: "" }), true],
])("when the apiserver %s, pods are watched in shards or not", async (_, answer, sharded) => {
  const watches = { observe: () => () => undefined, track: () => undefined };
  const parse = (): never => {
    throw new Error("nothing is watched");
  };
  const pods = await watchPods(contextWith(answer), parse, watches, () => undefined);
  expect(pods instanceof ShardedReflector).toBe(sharded);
});
