/**
 * The root of the files that a pod mounts by absolute paths: Secrets, ConfigMaps and the service account's token. In a
 * pod that is `/`. A kubelet of processes on one machine (`scripts/demo/kubelet.ts`) puts them below another directory,
 * and sets PODSEIDON_MOUNT_ROOT to it.
 */
import { isAbsolute, join } from "node:path";

export const MOUNT_ROOT_VARIABLE = "PODSEIDON_MOUNT_ROOT";

/** Returns the path of a file of a flag or of a service account on this machine. */
export function mounted(path: string, env: Readonly<Record<string, string | undefined>> = process.env): string {
  const root = env[MOUNT_ROOT_VARIABLE] ?? "";
  return root === "" || !isAbsolute(path) ? path : join(root, path);
}
