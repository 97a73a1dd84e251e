import type { ReflectorEvent } from "../../kube/informer/reflector-options.ts";

/** What the reflectors of the cores' protectors tell of restores, for as long as the process lives. */
export class CoreRestores {
  /** Restored cores, until their relist. */
  readonly relisting = new Set<string>();
  /** When each core last went back (monotonic). */
  readonly wentBackMs = new Map<string, number>();
  /** A core has gone back since somebody set this to false. */
  isNews = false;

  watched(core: string, { kind }: ReflectorEvent, nowMs: number): void {
    if (kind === "listed") this.relisting.delete(core);
    if (kind !== "versionWentBack") return;
    this.relisting.add(core);
    this.wentBackMs.set(core, nowMs);
    this.isNews = true;
  }
}
