import { hash } from "node:crypto";
import { connect, createServer, type Server, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import type { BuildProgress } from "./progress.ts";

/**
 * Mutual exclusion between processes of one machine: the process that listens on an abstract Unix socket holds the
 * lock. The kernel gives the name to one process at a time, and frees it however that process ends, so that a lock is
 * never stale. A waiting process connects to the holder, reads its progress and notices its end. Containers with other
 * network namespaces do not see each other's locks, so the result of the work is moved into place by one atomic rename.
 */

const RETRY_MS = 50;

/** The lock that belongs to `path`, for this user. */
export function lockNameOf(path: string): string {
  const digest = hash("sha256", path, "hex").slice(0, 24);
  return `\0podseidon-${process.getuid?.() ?? 0}-${digest}`;
}

/**
 * Waits until no other process runs work under the same name, then runs `work`. Meanwhile, `waiting` shows the holder's
 * progress, which is what the holder's `work` reports to its argument. Rejects like `work`.
 */
export async function exclusively<T>(
  name: string,
  waiting: BuildProgress,
  work: (announce: BuildProgress) => Promise<T>,
): Promise<T> {
  for (let waited = false; ; waited = true) {
    const server = await tryListen(name);
    if (server !== undefined) {
      try {
        return await work({ step: server.broadcast, detail: server.broadcast });
      } finally {
        server.close();
      }
    }
    if (!waited) waiting.step("another process is preparing the same; waiting for it");
    await follow(name, waiting);
  }
}

interface Holder {
  readonly broadcast: (line: string) => void;
  readonly close: () => void;
}

function tryListen(name: string): Promise<Holder | undefined> {
  const followers = new Set<Socket>();
  let latest = "";
  const server: Server = createServer((socket) => {
    followers.add(socket);
    socket.on("error", () => socket.destroy());
    socket.on("close", () => followers.delete(socket));
    socket.write(latest);
  });
  const holder: Holder = {
    broadcast(line) {
      latest = `${line}\n`;
      for (const socket of followers) if (socket.writableLength === 0) socket.write(latest);
    },
    close() {
      server.close();
      for (const socket of followers) socket.destroy();
    },
  };
  return new Promise((resolve, reject) => {
    server.once("listening", () => resolve(holder));
    server.once("error", (error: NodeJS.ErrnoException) =>
      error.code === "EADDRINUSE" ? resolve(undefined) : reject(error),
    );
    server.listen({ path: name });
  });
}

/** Resolves when the holder has ended, or can't be reached because it has just ended. */
async function follow(name: string, waiting: BuildProgress): Promise<void> {
  await new Promise<void>((resolve) => {
    const socket = connect({ path: name });
    socket.setEncoding("utf8");
    socket.on("data", (text: string) => waiting.detail(`${text.trimEnd().split("\n").at(-1)} (in another process)`));
    socket.on("error", () => socket.destroy());
    socket.on("close", () => resolve());
  });
  await delay(RETRY_MS);
}
