import { AccessError, type ClusterAccess } from "./cluster-access.ts";
import { loadClusterAccess } from "./kubeconfig.ts";

/** Of a process whose options or files can't be used. */
const EXIT_CONFIGURATION = 2;

/** Access to the cluster of a kubeconfig; one that can't be used ends the process with code 2, the flag and what to do about it. */
export async function accessOrExit(component: string, flag: string, path: string): Promise<ClusterAccess> {
  try {
    return await loadClusterAccess(path, { env: process.env });
  } catch (error) {
    if (!(error instanceof AccessError)) throw error;
    process.stderr.write(`${component}: ${flag}: ${error.message}\n`);
    process.exit(EXIT_CONFIGURATION);
  }
}
