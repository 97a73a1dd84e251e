/**
 * Where files are that a pod mounts by absolute paths. In a pod that is `/`; whoever plays the kubelet for processes on one machine
 * (`scripts/demo/kubelet.ts`) sets PODSEIDON_MOUNT_ROOT to the directory below which it has put them: Secrets, ConfigMaps and the
 * ServiceAccount's token, each at its path in the pod.
 */
import { isAbsolute, join } from "node:path";

export const MOUNT_ROOT_VARIABLE = "PODSEIDON_MOUNT_ROOT";

/** The path at which the file of a flag or of a ServiceAccount is found. */
export function mounted(path: string, env: Readonly<Record<string, string | undefined>> = process.env): string {
  const root = env[MOUNT_ROOT_VARIABLE] ?? "";
  return root === "" || !isAbsolute(path) ? path : join(root, path);
}
