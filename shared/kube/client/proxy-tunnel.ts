import type { Agent as HttpsAgent } from "node:https";
import { connect as connectTcp, isIP, type Socket } from "node:net";
import { Duplex } from "node:stream";
import { type ConnectionOptions, connect as connectTls } from "node:tls";
import { ADDRESS_MS, lookupOnce } from "../../runtime/name-lookup.ts";
import { failed } from "./https-errors.ts";
import { proxyAuthorization } from "./proxy-hop.ts";

const MAX_HEAD_BYTES = 16 * 1024;
const KEEP_ALIVE_MS = 15_000;

type Written = (error?: Error | null) => void;

/** Makes the agent connect through the proxy. */
export function connectThrough(agent: HttpsAgent, proxy: URL, settings: ConnectionOptions): void {
  agent.createConnection = (options) => {
    const { host, port } = "port" in options ? options : { host: undefined, port: undefined };
    if (!host || !port) throw new Error("a connection without an address");
    const target = `${isIP(host) === 6 ? `[${host}]` : host}:${port}`;
    const socket = new ProxyTunnel(proxy, target, settings);
    const servername = settings.servername ?? (isIP(host) === 0 ? host : "");
    return connectTls({ ...settings, socket, host, servername });
  };
}

/**
 * A tunnel through a proxy to `target` (HOST:PORT), by CONNECT. The stream exists before the proxy has answered, so
 * that the agent counts it, and so that its end closes the connection. Earlier writes wait for the answer.
 */
class ProxyTunnel extends Duplex {
  readonly #socket: Socket;
  readonly #proxyHost: string;
  #head = Buffer.alloc(0);
  #open = false;
  #waiting: (() => void) | undefined;

  /** `tls` is for a proxy that speaks HTTPS. */
  constructor(proxy: URL, target: string, tls: ConnectionOptions) {
    super();
    this.#proxyHost = proxy.host;
    const host = proxy.hostname.replace(/^\[|\]$/g, "");
    const secure = proxy.protocol === "https:";
    const port = proxy.port === "" ? (secure ? 443 : 80) : Number(proxy.port);
    const at = { host, port, lookup: lookupOnce, autoSelectFamilyAttemptTimeout: ADDRESS_MS };
    this.#socket = secure ? connectTls({ ...tls, ...at, servername: isIP(host) === 0 ? host : "" }) : connectTcp(at);
    this.#socket.setNoDelay(true).setKeepAlive(true, KEEP_ALIVE_MS);
    this.#socket.once(secure ? "secureConnect" : "connect", () => this.#socket.write(connectRequest(proxy, target)));
    this.#socket.on("data", (chunk: Buffer) => (this.#open ? this.#pass(chunk) : this.#answer(chunk)));
    this.#socket.on("error", (error) => this.destroy(error));
    this.#socket.on("end", () => (this.#open ? this.push(null) : this.#refuse("it closed the connection")));
    this.#socket.on("close", () => this.destroy());
  }

  override _read(): void {
    this.#socket.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, written: Written): void {
    const write = (): void => void this.#socket.write(chunk, written);
    if (this.#open) write();
    else this.#waiting = write;
  }

  override _final(ended: Written): void {
    this.#socket.end(() => ended());
  }

  override _destroy(error: Error | null, destroyed: Written): void {
    this.#socket.destroy();
    destroyed(error);
  }

  #pass(chunk: Buffer): void {
    if (!this.push(chunk)) this.#socket.pause();
  }

  #answer(chunk: Buffer): void {
    this.#head = Buffer.concat([this.#head, chunk]);
    const end = this.#head.indexOf("\r\n\r\n");
    if (end < 0) {
      if (this.#head.length > MAX_HEAD_BYTES) this.#refuse("its answer does not end");
      return;
    }
    const status = /^HTTP\/1\.[01] (\d{3})/.exec(this.#head.toString("latin1", 0, end))?.[1];
    if (!status?.startsWith("2")) {
      this.#refuse(status === undefined ? "its answer is no HTTP" : `HTTP ${status}`);
      return;
    }
    this.#open = true;
    const rest = this.#head.subarray(end + 4);
    if (rest.length > 0) this.#pass(rest);
    this.#waiting?.();
  }

  #refuse(why: string): void {
    const detail = `the proxy did not connect: ${why}`;
    this.destroy(failed("refused", false, this.#proxyHost, { detail }));
  }
}

function connectRequest(proxy: URL, target: string): string {
  const authorization = proxyAuthorization(proxy);
  const account = authorization === undefined ? "" : `Proxy-Authorization: ${authorization}\r\n`;
  return `CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n${account}\r\n`;
}
