import { Agent as HttpAgent } from "node:http";
import { Agent as HttpsAgent } from "node:https";
import { ADDRESS_MS, lookupOnce } from "../../runtime/name-lookup.ts";
import { splitAuthorities } from "../credentials/authorities.ts";
import type { TlsMaterial } from "../credentials/cluster-access.ts";
import { hopOf } from "./proxy-hop.ts";

/** Shorter than the apiserver's 90 s or more, so that no request is sent on a connection that the server closes. */
const IDLE_SOCKET_MS = 60_000;
const TCP_KEEP_ALIVE_MS = 15_000;
const SERVER = "server";

/** Each kind has its own connections. */
export type ConnectionKind = "reads" | "writes" | "lists" | "streams";

interface PoolOptions {
  readonly base: URL;
  readonly maxRequestSockets: number;
  readonly maxListSockets: number;
  readonly maxStreamSockets: number;
}

interface Pool extends Readonly<Record<ConnectionKind, HttpAgent>> {
  readonly tls: TlsMaterial;
}

/**
 * The connections to one apiserver. Reads, writes, lists and streams have separate bounded pools, so that no kind waits
 * for connections of another. The bounds include connections through a proxy. When the TLS material changes, new
 * connections use the new material, and connections in use close after their exchange.
 */
export class ConnectionPool {
  readonly #options: PoolOptions;
  #pool: Pool | undefined;
  #tunnels: typeof import("./proxy-tunnel.ts") | undefined;

  constructor(options: PoolOptions) {
    this.#options = options;
  }

  /** Loads the code for tunnels; to be awaited before connections through a proxy, which few processes have. */
  async loadTunnels(): Promise<void> {
    this.#tunnels ??= await import("./proxy-tunnel.ts");
  }

  /** The agent for an exchange with this TLS material. */
  agent(tls: TlsMaterial, kind: ConnectionKind): HttpAgent {
    if (this.#pool?.tls !== tls) {
      const old = this.#pool;
      this.#pool = this.#create(tls);
      if (old !== undefined) retire(old);
    }
    return this.#pool[kind];
  }

  /**
   * Closes idle connections: one of them was dead, and after a half-open break or a failover, all may be. The next
   * calls connect again.
   */
  closeIdle(): void {
    if (this.#pool !== undefined) closeIdle(this.#pool);
  }

  close(): void {
    if (this.#pool !== undefined) for (const agent of agentsOf(this.#pool)) agent.destroy();
    this.#pool = undefined;
  }

  #create(tls: TlsMaterial): Pool {
    const { maxRequestSockets, maxListSockets, maxStreamSockets } = this.#options;
    return {
      tls,
      reads: this.#agent(tls, maxRequestSockets),
      writes: this.#agent(tls, maxRequestSockets),
      lists: this.#agent(tls, maxListSockets),
      streams: this.#agent(tls, maxStreamSockets),
    };
  }

  #agent(tls: TlsMaterial, maxSockets: number): HttpAgent {
    const pooled = {
      lookup: lookupOnce,
      autoSelectFamilyAttemptTimeout: ADDRESS_MS,
      keepAlive: true,
      keepAliveMsecs: TCP_KEEP_ALIVE_MS,
      timeout: IDLE_SOCKET_MS,
      maxSockets,
      maxFreeSockets: maxSockets,
      scheduling: "lifo" as const,
    };
    const { base } = this.#options;
    if (hopOf(base, tls).protocol === "http:") return new HttpAgent(pooled);
    const settings = {
      // Of these, an unreadable one is left out alone, as by client-go.
      ...(tls.ca === undefined ? {} : { ca: splitAuthorities(tls.ca) }),
      ...(tls.cert === undefined ? {} : { cert: tls.cert }),
      ...(tls.key === undefined ? {} : { key: tls.key }),
      ...(tls.serverName === undefined ? {} : { servername: tls.serverName }),
      rejectUnauthorized: !tls.skipVerification,
      minVersion: "TLSv1.2" as const,
      ALPNProtocols: ["http/1.1"],
    };
    const agent = new HttpsAgent({ ...pooled, ...settings });
    if (tls.proxy !== undefined && base.protocol === "https:") {
      if (this.#tunnels === undefined) throw new Error("a connection through a proxy before its code is loaded");
      this.#tunnels.connectThrough(agent, new URL(tls.proxy), settings);
    }
    // One name suffices for one server and one identity. Node's own name contains all certificates, and is computed
    // three times for each call.
    agent.getName = () => SERVER;
    return agent;
  }
}

function agentsOf({ reads, writes, lists, streams }: Pool): readonly HttpAgent[] {
  return [reads, writes, lists, streams];
}

/** Closes idle connections now, and connections in use after their exchange. */
function retire(pool: Pool): void {
  for (const agent of agentsOf(pool)) agent.maxFreeSockets = 0;
  closeIdle(pool);
}

function closeIdle(pool: Pool): void {
  for (const { freeSockets } of agentsOf(pool))
    for (const sockets of Object.values(freeSockets)) for (const socket of sockets ?? []) socket.destroy();
}
