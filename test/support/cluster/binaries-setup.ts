import { ensureBinaries } from "../../../scripts/control-plane/binaries/binaries.ts";

/**
 * Provides the cluster binaries before the first test, however long that takes, so that no test's timeout includes it.
 */
export default async function setup(): Promise<void> {
  await ensureBinaries();
}
