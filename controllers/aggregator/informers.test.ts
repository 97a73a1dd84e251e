import { expect, test } from "vitest";
import type { ApiRequest, ApiResponse } from "../../shared/kube/client/transport.ts";
import { TransportError } from "../../shared/kube/client/transport.ts";
import { ShardedReflector } from "../../shared/kube/informer/sharded-reflector.ts";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { watchPods } from "./informers.ts";

type Context = Parameters<typeof watchPods>[0];

/** A context as far as pods need it. */
function contextWith(answer: (request: ApiRequest) => Promise<ApiResponse>, namespace = ""): Context {
  return {
    ports: new VirtualTime(),
    transport: { request: answer, stream: () => Promise.reject(new Error("nothing is watched")), close() {} },
    flags: { namespace, podSelector: "", cellId: "cell", podShards: 4, coreTimeout: 1000 },
    log: { warn: () => undefined },
  };
}

const listed = (metadata: object) => async (): Promise<ApiResponse> => ({
  ...{ status: 200, headers: {} },
  body: JSON.stringify({ metadata, items: [] }),
});

const watches = { observe: () => () => undefined, track: () => undefined };

function parse(): never {
  throw new Error("nothing is watched");
}

test.each<[string, () => Promise<ApiResponse>, boolean]>([
  ["offers them", listed({ shardInfo: { selector: "x" } }), true],
  ["does not offer them", listed({}), false],
  ["rejects them", async () => ({ status: 400, headers: {}, body: "" }), false],
  ["gives no answer", () => Promise.reject(new TransportError("refused", false, "refused")), true],
  ["is overloaded", async () => ({ status: 503, headers: {}, body: "" }), true],
])("when the apiserver %s, pods are watched in shards or not", async (_, answer, sharded) => {
  const pods = await watchPods(contextWith(answer), parse, watches, () => undefined);
  expect(pods instanceof ShardedReflector).toBe(sharded);
});

test("an aggregator that may list the pods of its namespace alone asks there whether shards are offered", async () => {
  const offered = listed({ shardInfo: { selector: "x" } });
  const answer = ({ path }: ApiRequest): Promise<ApiResponse> =>
    path.startsWith("/api/v1/namespaces/team/pods?")
      ? offered()
      : Promise.resolve({ status: 403, headers: {}, body: "" });
  const pods = await watchPods(contextWith(answer, "team"), parse, watches, () => undefined);
  expect(pods).toBeInstanceOf(ShardedReflector);
});
