/**
 * The connections of one process to the server of a cell whose pods it watches in shards: what asks for a shard has one of its own, so that
 * each can fail, lag and end for itself, and everything else goes by another.
 */
import type { ApiRequest, ApiResponse, ApiStream, Transport } from "../../../shared/kube/client/transport.ts";
import type { SimulatedLink } from "../apiserver/link.ts";
import { parsePath } from "../apiserver/resources.ts";
import { shardNamed } from "../apiserver/shards.ts";

export class ShardLinks implements Transport {
  readonly #rest: SimulatedLink;
  /** In the order of the shards; none where nothing is sharded. */
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
    return this.shards[shardNamed(selector, this.shards.length)] ?? this.#rest;
  }
}
