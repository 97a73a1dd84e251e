/** Protectors as a core stores them. Each version is parsed once, however many checks look at it. */
import { Ledger } from "../../../shared/decide/ledger/ledger.ts";
import { type CellStatus, type PodProtector, parsePodProtector } from "../../../shared/schema/podprotector.ts";
import type { EtcdObject } from "../apiserver/etcd.ts";
import { record } from "../apiserver/objects.ts";
import type { WantedPods } from "./pod-truth.ts";

const parsed = new WeakMap<EtcdObject, PodProtector>();
const ledgers = new WeakMap<CellStatus, Ledger>();

export function parseStored(stored: EtcdObject): PodProtector {
  let protector = parsed.get(stored);
  if (protector === undefined) {
    const metadata = { ...record(stored.value.metadata), resourceVersion: String(stored.revision) };
    protector = parsePodProtector({ ...stored.value, metadata });
    parsed.set(stored, protector);
  }
  return protector;
}

/** The UIDs that hold a reservation, by cell. */
export function reservedUids(stored: EtcdObject | undefined): Map<string, Set<string>> {
  const found = new Map<string, Set<string>>();
  for (const cell of stored === undefined ? [] : (parseStored(stored).status?.cells ?? []))
    found.set(cell.cellID, new Set([...ledgerOf(cell).reservations()].flatMap(({ uid }) => uid ?? [])));
  return found;
}

/** The ledger must not be changed. */
export function ledgerOf(cell: CellStatus | undefined): Ledger {
  if (cell === undefined) return NO_LEDGER;
  const ledger = ledgers.get(cell) ?? Ledger.parse(cell.admissionHistory?.buckets);
  ledgers.set(cell, ledger);
  return ledger;
}

const NO_LEDGER = Ledger.parse(undefined);

export function wantedOf(protector: PodProtector): WantedPods {
  const { selector, aggregationSelector, minReadySeconds, availabilityConditions: conditions } = protector.spec;
  const labels = (aggregationSelector ?? selector).matchLabels ?? {};
  return conditions === undefined ? { labels, minReadySeconds } : { labels, minReadySeconds, conditions };
}
