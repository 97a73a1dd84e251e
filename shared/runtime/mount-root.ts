/**
 * The root of the files that a pod mounts by absolute paths: Secrets, ConfigMaps and the service account's token. In a
 * pod, the root is `/`. The demo's kubelet (`scripts/demo/kubelet.ts`), which runs processes on one machine, mounts
 * files below another directory, and sets PODSEIDON_MOUNT_ROOT to this directory.
 */
import { isAbsolute, join } from "node:path";

export const MOUNT_ROOT_VARIABLE = "PODSEIDON_MOUNT_ROOT";

/** Returns the path on this machine of a file that a flag names, or of a service account. */
export function mounted(path: string, env: Readonly<Record<string, string | undefined>> = process.env): string {
  const root = env[MOUNT_ROOT_VARIABLE] ?? "";
  return root === "" || !isAbsolute(path) ? path : join(root, path);
}
