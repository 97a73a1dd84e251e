/** Counts the writes that go through it: how many are under way at a time, and what became of them. */
import type { ApiRequest, ApiResponse, ApiStream, Transport } from "../../../shared/kube/client/transport.ts";

export class CountingTransport implements Transport {
  readonly #transport: Transport;
  #underWay = 0;
  /** At most so many were under way at a time. */
  most = 0;
  readonly writes = { made: 0, refused: 0 };

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  async request(request: ApiRequest): Promise<ApiResponse> {
    const isWrite = request.method !== "GET";
    if (isWrite) this.#underWay += 1;
    this.most = Math.max(this.most, this.#underWay);
    try {
      const answer = await this.#transport.request(request);
      if (isWrite && answer.status < 300) this.writes.made += 1;
      else if (isWrite) this.writes.refused += 1;
      return answer;
    } finally {
      if (isWrite) this.#underWay -= 1;
    }
  }

  stream(request: ApiRequest): Promise<ApiStream> {
    return this.#transport.stream(request);
  }

  close(): void {}
}
