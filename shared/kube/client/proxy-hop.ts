import type { TlsMaterial } from "../credentials/cluster-access.ts";

/** The address to connect to. As in Go, requests to a server without TLS go to its proxy, with whole URLs. */
export function hopOf(base: URL, { proxy }: TlsMaterial): URL {
  return base.protocol === "http:" && proxy !== undefined ? new URL(proxy) : base;
}

/** The value of `Proxy-Authorization`; undefined for a proxy without an account. */
export function proxyAuthorization({ username, password }: URL): string | undefined {
  const account = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  return account === ":" ? undefined : `Basic ${Buffer.from(account).toString("base64")}`;
}
