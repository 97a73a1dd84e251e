import type { BackupKeeper } from "../../../shared/recovery/backup/backup-keeper.ts";
import type { VirtualTime } from "../runtime/virtual-ports.ts";

/** The keeper runs as a leader. Returns what ends that. */
export function leadKeeper(keeper: BackupKeeper, time: VirtualTime): () => Promise<void> {
  const leading = new AbortController();
  const work = keeper.run(leading.signal);
  return async () => {
    leading.abort();
    await time.advance(1_000);
    await work;
    await keeper.stop();
  };
}
