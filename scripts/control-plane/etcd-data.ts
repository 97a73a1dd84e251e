import { cpSync, renameSync, rmSync } from "node:fs";
import type { ManagedProcess } from "./managed-process.ts";

/** A copy of etcd's data. */
export interface EtcdSnapshot {
  readonly directory: string;
}

/** Copies etcd's data as they are on disk; etcd stands still for as long as that takes. */
export function copyEtcdData(etcd: ManagedProcess, data: string, directory: string): EtcdSnapshot {
  // A process that is stopped between two writes leaves what a crash would leave, which etcd recovers from.
  etcd.freeze();
  try {
    cpSync(data, directory, { recursive: true });
  } finally {
    etcd.thaw();
  }
  return { directory };
}

/** Kills etcd, puts `snapshot` in place of its data and starts it. The snapshot can be used again. */
export async function replaceEtcdData(etcd: ManagedProcess, data: string, snapshot: EtcdSnapshot): Promise<void> {
  await etcd.kill();
  const discarded = `${data}-discarded`;
  renameSync(data, discarded);
  cpSync(snapshot.directory, data, { recursive: true });
  rmSync(discarded, { recursive: true, force: true });
  await etcd.start();
}

/** Kills etcd, takes all its data away and starts it. */
export async function emptyEtcdData(etcd: ManagedProcess, data: string): Promise<void> {
  await etcd.kill();
  rmSync(data, { recursive: true, force: true });
  await etcd.start();
}
