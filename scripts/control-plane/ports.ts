import { createServer } from "node:net";

/**
 * Free ports on loopback addresses. They are taken from below the range from which the kernel gives ports to outgoing
 * connections (32768 and up by default), so that a server that was killed finds its port still free when it is started again.
 */

const LOWEST = 20_000;
const HIGHEST = 31_999;
const TRIES = 200;

/** Handed out by this process and not given back. */
const taken = new Set<string>();

/** A port on `address` that nobody listens on and that this process did not hand out before. */
export async function reservePort(address: string): Promise<number> {
  for (let tries = 0; tries < TRIES; tries++) {
    const port = LOWEST + Math.floor(Math.random() * (HIGHEST - LOWEST + 1));
    const key = `${address}:${port}`;
    if (taken.has(key)) continue;
    taken.add(key);
    if (await isFree(address, port)) return port;
    taken.delete(key);
  }
  throw new Error(`no free port was found on ${address} between ${LOWEST} and ${HIGHEST}`);
}

/** Gives a port back that {@link reservePort} handed out. */
export function releasePort(address: string, port: number): void {
  taken.delete(`${address}:${port}`);
}

/** Whether a server could listen there now. */
export function isFree(address: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(false));
    server.listen({ host: address, port, exclusive: true }, () => server.close(() => resolve(true)));
  });
}
