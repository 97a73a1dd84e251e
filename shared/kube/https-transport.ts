import type { Ports } from "../runtime/clock.ts";
import type { ClusterAccess } from "./cluster-access.ts";
import type { Transport } from "./transport.ts";

export interface HttpsTransportOptions {
  readonly ports: Ports;
  /** `User-Agent`, for example `podseidon-webhook/0.1.0`. */
  readonly userAgent: string;
  /** Connections for requests; streams have connections of their own. Default 16. */
  readonly maxRequestSockets?: number;
  /** Connections for streams. Default 64. */
  readonly maxStreamSockets?: number;
  /** Largest response body of `request`. Default 64 MiB. */
  readonly maxBodyBytes?: number;
}

/** HTTP/1.1 with keep-alive to one apiserver (design 8). */
export declare function createHttpsTransport(access: ClusterAccess, options: HttpsTransportOptions): Transport;
