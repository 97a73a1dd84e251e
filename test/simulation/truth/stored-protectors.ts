/** Protectors as a core stores them. Each version is parsed once, however many checks look at it. */
import { Ledger } from "../../../shared/decide/ledger/ledger.ts";
import type { Reservation, ReservationRecord } from "../../../shared/decide/ledger/reservation.ts";
import {
  type CellStatus,
  type Operation,
  type PodProtector,
  parsePodProtector,
} from "../../../shared/schema/podprotector.ts";
import type { EtcdObject, Json } from "../apiserver/etcd.ts";
import { record } from "../apiserver/objects.ts";
import type { ApiServer } from "../apiserver/server.ts";
import { NAMESPACE } from "../scenario/scenario.ts";
import { uidOfHash } from "./packed-uids.ts";
import type { WantedPods } from "./pod-truth.ts";

const parsed = new WeakMap<EtcdObject, PodProtector>();
const ledgers = new WeakMap<CellStatus, StoredLedger>();

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

/** A cell's reservations as they are stored. A packed one has the UID of its pod, like every other. */
class StoredLedger {
  readonly weight: number;
  readonly ranges: Ledger["ranges"];
  readonly #byUid = new Map<string, Reservation>();
  readonly #withoutUid: Reservation[] = [];

  constructor(buckets: Parameters<typeof Ledger.parse>[0]) {
    const ledger = Ledger.parse(buckets);
    this.weight = ledger.weight;
    this.ranges = ledger.ranges;
    for (const reservation of ledger.reservations()) {
      const uid = reservation.uid ?? uidOfHash(reservation.uidHash);
      if (uid === undefined) this.#withoutUid.push(reservation);
      else this.#byUid.set(uid, { ...reservation, uid });
    }
  }

  *reservations(): IterableIterator<Reservation> {
    yield* this.#byUid.values();
    yield* this.#withoutUid;
  }

  get(uid: string): Reservation | undefined {
    return this.#byUid.get(uid);
  }
}

export function ledgerOf(cell: CellStatus | undefined): StoredLedger {
  if (cell === undefined) return NO_LEDGER;
  const ledger = ledgers.get(cell) ?? new StoredLedger(cell.admissionHistory?.buckets);
  ledgers.set(cell, ledger);
  return ledger;
}

const NO_LEDGER = new StoredLedger(undefined);

/** What a request disrupts. */
export interface Disrupted {
  readonly uid: string;
  readonly operation: Operation;
  /** The version at which it commits; undefined for any. */
  readonly revision: number | undefined;
}

/**
 * True when a record of the pod holds until the request is settled: rule R2 drops a DELETE at an older version, and an
 * UPDATE at one ends with that change. An eviction is bound to no version, so its record holds for a deletion as well.
 */
export function standsFor(
  records: ReadonlyMap<Operation, Pick<ReservationRecord, "podResourceVersion">> | undefined,
  { operation, revision = 0 }: Disrupted,
): boolean {
  if (operation === "DELETE" && records?.has("EVICT") === true) return true;
  const own = records?.get(operation);
  return own !== undefined && (operation === "EVICT" || Number(own.podResourceVersion ?? revision) >= revision);
}

/** True when the stored protector has a record of the pod that stands for the request. */
export function isRecorded({ etcd }: ApiServer, name: string, cell: string, request: Disrupted): boolean {
  const stored = etcd.get(`podprotectors/${NAMESPACE}/${name}`);
  const cells = stored === undefined ? [] : (parseStored(stored).status?.cells ?? []);
  return standsFor(ledgerOf(cells.find(({ cellID }) => cellID === cell)).get(request.uid)?.records, request);
}

/** A minimum of 0 promises nothing. */
export function promises({ value }: EtcdObject): boolean {
  return promisesPods(record(value.spec));
}

export function promisesPods({ minAvailable }: Json): boolean {
  return Number(minAvailable ?? 0) > 0;
}

export function wantedOf(protector: PodProtector): WantedPods {
  const { selector, aggregationSelector, availabilityConditions: conditions, healthCriterion } = protector.spec;
  const labels = (aggregationSelector ?? selector).matchLabels ?? {};
  const isByTime = healthCriterion === undefined || healthCriterion === "Available";
  const minReadySeconds = isByTime ? protector.spec.minReadySeconds : 0;
  return {
    ...{ labels, minReadySeconds },
    ...(conditions === undefined ? {} : { conditions }),
    ...(healthCriterion === "Running" ? { isByPhase: true } : {}),
  };
}
