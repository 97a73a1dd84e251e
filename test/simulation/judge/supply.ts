/** S2 in the worlds where it is promised: specs stay, clocks do not decide, nothing goes by force and no history is lost. */
import type { EtcdChange } from "../apiserver/etcd.ts";
import { metadataOf, text } from "../apiserver/objects.ts";
import { parse, wantedOf } from "../truth/stored-protectors.ts";
import type { Scenario } from "../world/scenario.ts";
import type { CellTruth } from "./checks.ts";
import type { Exemptions } from "./exemptions.ts";
import { Shortfall } from "./shortfall.ts";

interface Watched {
  readonly shortfall: Shortfall;
  readonly labels: Readonly<Record<string, string>>;
}

export class Supply {
  readonly #cells: ReadonlyMap<string, CellTruth>;
  readonly #violation: (invariant: string, message: string) => void;
  readonly #exemptions: Exemptions;
  readonly #protectors = new Map<string, Watched>();

  constructor(
    cells: ReadonlyMap<string, CellTruth>,
    exemptions: Exemptions,
    violation: (invariant: string, message: string) => void,
  ) {
    this.#cells = cells;
    this.#exemptions = exemptions;
    this.#violation = violation;
  }

  static applies({ faults, features, protectors }: Scenario): boolean {
    if (features.generatorEveryMs > 0 || features.copiesEveryMs > 0) return false;
    if (features.accidentEveryMs > 0 && !features.isSteady) return false;
    if (features.isDryRunMode || features.terminateEveryMs > 0 || features.chillEveryMs > 0) return false;
    const isConstant = faults.editSpecEveryMs + faults.restoreCoreEveryMs + faults.recreateProtectorEveryMs === 0;
    const isKnown = faults.restoreCellEveryMs + faults.failOpenRate === 0;
    return (
      isConstant && isKnown && faults.forceDeleteEveryMs === 0 && protectors.every((one) => one.minReadySeconds === 0)
    );
  }

  protectorChanged({ key, after }: EtcdChange): void {
    if (after === undefined) return;
    const protector = parse(after);
    const known = this.#protectors.get(key) ?? { shortfall: new Shortfall(), labels: wantedOf(protector).labels };
    this.#protectors.set(key, known);
    known.shortfall.written(protector);
  }

  podChanged(cell: string, change: EtcdChange): void {
    if (!change.key.startsWith("pods/")) return;
    const truth = this.#cells.get(cell);
    const lost = truth?.pods.lossAt(change);
    const isRestart = lost === "own" && truth?.restarts?.isDown(uidOf(change)) === true;
    const loss = isRestart ? "taken" : lost;
    for (const [key, { shortfall, labels }] of this.#protectors) {
      if (loss === "own" || this.#exemptions.has(nameOf(key), cell, uidOf(change)))
        shortfall.lost(cell, uidOf(change), change.revision);
      let available = 0;
      for (const { pods } of this.#cells.values()) available += pods.countNow({ labels, minReadySeconds: 0 });
      const unexplained = shortfall.unexplained(available);
      if (unexplained > 0 && loss === "taken")
        this.#violation(
          "S2",
          `${key}: ${available} pods are available, ${unexplained} too few, after ${change.key} was taken`,
        );
    }
  }
}

function nameOf(key: string): string {
  return key.slice(key.lastIndexOf("/") + 1);
}

function uidOf({ before, after }: EtcdChange): string {
  return text(metadataOf((after ?? before)?.value ?? {}).uid) ?? "";
}
