import { createServer, type Server } from "node:net";

/**
 * Free ports on loopback addresses. They are taken from below the range from which the kernel gives ports to outgoing
 * connections (32768 and up by default), so that a server that was killed finds its port still free when it is started again.
 * A process takes them from blocks that are its own, so that two that run side by side never reach for the same one.
 */

const LOWEST = 20_000;
const HIGHEST = 31_999;
const BLOCK = 100;
const BLOCKS = (HIGHEST - LOWEST + 1) / BLOCK;
/** Listens on the first port of each block as long as the process lives: whoever can do that owns the block. */
const CLAIM_ADDRESS = "127.0.0.1";

/** Of the newest block of this process, not handed out so far. */
let fresh: number[] = [];
let claiming: Promise<void> | undefined;

/** A port on `address` that nobody listens on and that neither this process nor another that asks here has been given. */
export async function reservePort(address: string): Promise<number> {
  for (;;) {
    const port = fresh.shift();
    if (port === undefined) {
      claiming ??= claimBlock().finally(() => {
        claiming = undefined;
      });
      await claiming;
    } else if (await isFree(address, port)) return port;
  }
}

async function claimBlock(): Promise<void> {
  const first = Math.floor(Math.random() * BLOCKS);
  for (let index = 0; index < BLOCKS; index++) {
    const port = LOWEST + ((first + index) % BLOCKS) * BLOCK;
    const server = await listen(CLAIM_ADDRESS, port);
    if (server === undefined) continue;
    server.unref();
    fresh = Array.from({ length: BLOCK - 1 }, (_, offset) => port + 1 + offset);
    return;
  }
  throw new Error(`no free ports were found between ${LOWEST} and ${HIGHEST}: other processes have them all`);
}

/** Whether a server could listen there now. */
export async function isFree(address: string, port: number): Promise<boolean> {
  const server = await listen(address, port);
  if (server === undefined) return false;
  await new Promise<void>((resolve) => server.close(() => resolve()));
  return true;
}

function listen(host: string, port: number): Promise<Server | undefined> {
  return new Promise((resolve) => {
    const server = createServer((socket) => socket.destroy());
    server.once("error", () => resolve(undefined));
    server.listen({ host, port, exclusive: true }, () => resolve(server));
  });
}
