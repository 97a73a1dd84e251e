/**
 * The aggregator's part in recovery: it stores backups of the protectors that its cell counts, restores lost ones from
 * them after a head start for the generator, and acknowledges releases in each core's release register. A {@link
 * BackupKeeper} lasts as long as the process; each leadership is one run (`keeper-run.ts`).
 */

import type { ReflectorEvent } from "../../kube/informer/reflector-options.ts";
import type { BackupTrouble } from "../recovery-events.ts";
import { CoreRestores } from "./core-restores.ts";
import { type BackupKeeperOptions, KeeperRun } from "./keeper-run.ts";

export class BackupKeeper {
  readonly #options: BackupKeeperOptions;
  readonly #restores = new CoreRestores();
  #run: KeeperRun | undefined;

  constructor(options: BackupKeeperOptions) {
    this.#options = options;
  }

  /** Number of lost protectors. */
  get lost(): number {
    return this.#run?.restorer.size ?? 0;
  }

  /** Number of protectors that have a backup. */
  get backups(): number {
    return this.#run?.chunks.size ?? 0;
  }

  /** Undefined where this process does not lead. */
  get trouble(): BackupTrouble | undefined {
    return this.#run?.trouble;
  }

  /** Ids that this cell had before, by their backups; undefined while they are not read. */
  get formerCells(): ReadonlySet<string> | undefined {
    return this.#run?.formerCells;
  }

  /** Takes every event of a core's reflector of protectors. */
  watched(core: string, event: ReflectorEvent): void {
    this.#restores.watched(core, event, this.#options.ports.clock.monotonicMs());
  }

  /**
   * Takes every event of the cell's reflector of pods: a relist may follow a restore of the cell, which brings back old
   * backups.
   */
  cellWatched(event: ReflectorEvent): void {
    if (event.kind === "listed" && event.reason !== "first") this.#run?.chunks.invalidate();
  }

  /** Keeps backups while this process leads; resolves soon after `signal` aborts. */
  async run(signal: AbortSignal): Promise<void> {
    for (const { releases } of this.#options.cores) releases.start();
    const run = new KeeperRun(this.#options, this.#restores);
    this.#run = run;
    await run.run(signal);
    this.#run = undefined;
  }

  async stop(): Promise<void> {
    await Promise.all(this.#options.cores.map(({ releases }) => releases.stop()));
  }
}
