import { createServer, type Server } from "node:net";

/**
 * Free ports on loopback addresses, below the kernel's range for outgoing connections (32768 and up by default), so
 * that a killed server finds its port free when it starts again. Each process takes ports from its own blocks, so that
 * concurrent processes never collide.
 */

const LOWEST = 20_000;
const HIGHEST = 31_999;
const BLOCK = 100;
const BLOCKS = (HIGHEST - LOWEST + 1) / BLOCK;
/** A process owns a block while it listens on the block's first port. */
const CLAIM_ADDRESS = "127.0.0.1";

/** Ports of the newest block of this process that are not reserved yet. */
let fresh: number[] = [];
let claiming: Promise<void> | undefined;

/** A port on `address` that no process listens on or has reserved. */
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

export async function isFree(address: string, port: number): Promise<boolean> {
  const server = await listen(address, port);
  await server?.[Symbol.asyncDispose]();
  return server !== undefined;
}

function listen(host: string, port: number): Promise<Server | undefined> {
  return new Promise((resolve) => {
    const server = createServer((socket) => socket.destroy());
    server.once("error", () => resolve(undefined));
    server.listen({ host, port, exclusive: true }, () => resolve(server));
  });
}
