import { ensureBinaries } from "../../../scripts/control-plane/binaries/binaries.ts";

/** Before the first test on a cluster: its binaries are there, however long that takes, outside of any test's time. */
export default async function setup(): Promise<void> {
  await ensureBinaries();
}
