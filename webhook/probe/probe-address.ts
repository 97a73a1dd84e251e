/**
 * The address of a probe, and whether the operator allows it (docs/design.md#owner-probe): otherwise, users who may
 * write a protector could reach every address that the webhook reaches.
 */
import { BlockList, isIP } from "node:net";
import { ProbeFailure } from "./probe-client.ts";
import type { ProbeSpec } from "./probe-request.ts";

export interface ProbeAddress {
  readonly host: string;
  /** `host:port`, the only part of an endpoint that texts show: the rest may contain a secret. */
  readonly text: string;
}

/** `host:port`, without the scheme of a gRPC endpoint. */
export function authorityOf(endpoint: string): string {
  return endpoint.replace(/^(dns:\/\/\/|dns:|passthrough:\/\/\/)/, "");
}

/** Throws {@link ProbeFailure} for an endpoint that is not an address, or has a user name or a password. */
export function probeAddressOf({ endpoint, protocol, insecure }: ProbeSpec): ProbeAddress {
  const text = protocol === "HTTP" ? endpoint : `${insecure ? "http" : "https"}://${authorityOf(endpoint)}`;
  if (!URL.canParse(text)) throw new ProbeFailure("its endpoint is not a URL");
  const url = new URL(text);
  if (url.protocol !== "https:" && url.protocol !== "http:")
    throw new ProbeFailure("its endpoint is not an http or https URL");
  if (url.username !== "" || url.password !== "")
    throw new ProbeFailure("its endpoint has a user name or a password: use --probe-client-cert-file");
  const host = url.hostname.replace(/^\[|\]$|\.$/g, "");
  return { host, text: `${url.hostname}:${url.port || (url.protocol === "https:" ? "443" : "80")}` };
}

/** The hosts of `--probe-allow`: names, names that begin with `*.`, addresses and networks. */
export class AllowedHosts {
  readonly #names = new Set<string>();
  readonly #ends: string[] = [];
  readonly #networks = new BlockList();

  constructor(allowed: readonly string[]) {
    for (const one of allowed) {
      const [address = "", bits] = one.split("/");
      const family = isIP(address);
      if (family !== 0)
        this.#networks.addSubnet(address, Number(bits ?? (family === 4 ? 32 : 128)), family === 4 ? "ipv4" : "ipv6");
      else if (one.startsWith("*.")) this.#ends.push(one.slice(1).toLowerCase());
      else this.#names.add(one.toLowerCase());
    }
  }

  has(host: string): boolean {
    const family = isIP(host);
    if (family !== 0) return this.#networks.check(host, family === 4 ? "ipv4" : "ipv6");
    return this.#names.has(host) || this.#ends.some((end) => host.endsWith(end) && host.length > end.length);
  }
}
