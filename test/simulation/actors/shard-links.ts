/**
 * The links of one process to the server of a cell whose pods it watches in shards. Each shard has a link of its own,
 * which can fail, lag and end by itself. All other requests use one more link.
 */
import type { ApiRequest, ApiResponse, ApiStream, Transport } from "../../../shared/kube/client/transport.ts";
import type { SimulatedLink } from "../apiserver/link.ts";
import { parsePath } from "../apiserver/resources.ts";
import { firstShardOf } from "../apiserver/shards.ts";

export class ShardLinks implements Transport {
  readonly #rest: SimulatedLink;
  /** In the order of the shards; empty where nothing is sharded. */
  readonly shards: readonly SimulatedLink[];

  constructor(count: number, make: () => SimulatedLink) {
    this.#rest = make();
    this.shards = count === 1 ? [] : Array.from({ length: count }, make);
  }

  request(request: ApiRequest): Promise<ApiResponse> {
    return this.#linkOf(request).request(request);
  }

  stream(request: ApiRequest): Promise<ApiStream> {
    return this.#linkOf(request).stream(request);
  }

  close(): void {
    this.#rest.close();
    for (const link of this.shards) link.close();
  }

  #linkOf({ path }: ApiRequest): SimulatedLink {
    const selector = parsePath(path)?.query.get("shardSelector") ?? null;
    if (selector === null) return this.#rest;
    return this.shards[firstShardOf(selector, this.shards.length)] ?? this.#rest;
  }
}
