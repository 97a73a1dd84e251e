/**
 * Loaded into a component before its own code (`NODE_OPTIONS=--import`). Host names below `.fault.test` resolve to this
 * machine, except those that the file PODSEIDON_TEST_UNKNOWN_HOSTS lists, one a line, which do not exist.
 */
import dns, { type LookupAddress } from "node:dns";
import { readFileSync } from "node:fs";

type Callback = (error: Error | null, address?: string | LookupAddress[], family?: number) => void;

const system = dns.lookup;

function isUnknown(hostname: string): boolean {
  try {
    return readFileSync(process.env.PODSEIDON_TEST_UNKNOWN_HOSTS ?? "", "utf8")
      .split("\n")
      .includes(hostname);
  } catch {
    return false;
  }
}

function lookup(hostname: string, options: dns.LookupOptions, callback: Callback): void {
  if (!hostname.endsWith(".fault.test")) system(hostname, options, callback);
  else if (isUnknown(hostname)) {
    const error = Object.assign(new Error(`getaddrinfo ENOTFOUND ${hostname}`), {
      code: "ENOTFOUND",
      syscall: "getaddrinfo",
      hostname,
    });
    setImmediate(() => callback(error));
  } else if (options.all) setImmediate(() => callback(null, [{ address: "127.0.0.1", family: 4 }]));
  else setImmediate(() => callback(null, "127.0.0.1", 4));
}

Object.assign(dns, { lookup });
