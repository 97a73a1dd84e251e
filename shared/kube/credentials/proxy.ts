/** The proxy for an apiserver: `proxy-url` of the kubeconfig, or the environment by Go's httpproxy rules. */
import { BlockList, isIP } from "node:net";
import { AccessError } from "./cluster-access.ts";

type Environment = Readonly<Record<string, string | undefined>>;

export interface ProxySettings {
  /** The configuration, for messages. */
  readonly where: string;
  readonly server: string;
  readonly proxyUrl: string | null | undefined;
  readonly env: Environment;
}

/**
 * Returns the URL of the proxy; undefined to connect directly. Throws {@link AccessError} for an unusable proxy:
 * credentials must not be sent another way than configured.
 */
export function proxyFor({ where, server, proxyUrl, env }: ProxySettings): string | undefined {
  const { hostname, port, protocol } = new URL(server);
  if (proxyUrl) return usable(`${where}: proxy-url`, proxyUrl);
  const isSecure = protocol === "https:";
  const [name, given] = firstOf(env, isSecure ? ["HTTPS_PROXY", "https_proxy"] : ["HTTP_PROXY", "http_proxy"]);
  if (given === "") return undefined;
  const [, exceptions] = firstOf(env, ["NO_PROXY", "no_proxy"]);
  if (isExcepted(hostname.replace(/^\[|\]$/g, ""), port || (isSecure ? "443" : "80"), exceptions)) return undefined;
  // As in Go, HOST:PORT means http.
  return usable(name, /^[a-z][a-z0-9+.-]*:\/\//i.test(given) ? given : `http://${given}`);
}

function firstOf(env: Environment, names: readonly string[]): [string, string] {
  const name = names.find((candidate) => env[candidate]) ?? "";
  return [name, env[name] ?? ""];
}

/** Messages contain only the scheme, because the URL may have a password. */
function usable(what: string, text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url !== undefined && (url.protocol === "http:" || url.protocol === "https:") && url.hostname !== "") {
    if (isDecodable(url.username) && isDecodable(url.password)) return text;
    throw new AccessError("proxy", `${what} has an account that can't be decoded; write a % in it as %25`);
  }
  const scheme = url === undefined || url.hostname === "" ? "is no URL of a proxy" : `has the scheme ${url.protocol}//`;
  throw new AccessError("proxy", `${what} ${scheme}; this client supports http://HOST:PORT and https://HOST:PORT`);
}

function isDecodable(text: string): boolean {
  try {
    decodeURIComponent(text);
    return true;
  } catch {
    return false;
  }
}

/** Go's rules: loopback is never proxied; `*`, addresses, CIDRs, `name` with its subdomains, `.name` without. */
function isExcepted(host: string, port: string, exceptions: string): boolean {
  const name = host.toLowerCase();
  if (name === "localhost" || isLoopback(name)) return true;
  return exceptions.split(",").some((entry) => matches(entry.trim().toLowerCase(), name, port));
}

function isLoopback(host: string): boolean {
  return host === "::1" || (isIP(host) === 4 && host.startsWith("127.")) || host.startsWith("::ffff:7f");
}

function matches(entry: string, host: string, port: string): boolean {
  if (entry === "*") return true;
  const [address = "", bits = "", ...rest] = entry.split("/");
  if (isIP(address) !== 0 && rest.length === 0 && /^\d{1,3}$/.test(bits)) return isWithin(host, address, Number(bits));
  const split = /^(?:\[(.*)\]|([^:]*)):(\d*)$/.exec(entry);
  const wanted = split === null ? entry : (split[1] ?? split[2] ?? "");
  if (wanted === "" || (split?.[3] && split[3] !== port)) return false;
  if (isIP(wanted) !== 0) return isWithin(host, wanted, isIP(wanted) === 4 ? 32 : 128);
  const domain = wanted.replace(/^\*(?=\.)/, "");
  return domain.startsWith(".") ? host.endsWith(domain) : host === domain || host.endsWith(`.${domain}`);
}

function isWithin(host: string, address: string, bits: number): boolean {
  const family = isIP(address) === 4 ? "ipv4" : "ipv6";
  if (isIP(host) === 0 || bits > (family === "ipv4" ? 32 : 128)) return false;
  const list = new BlockList();
  list.addSubnet(address, bits, family);
  return list.check(host, isIP(host) === 4 ? "ipv4" : "ipv6");
}
