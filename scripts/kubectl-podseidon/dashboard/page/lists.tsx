/** What is under way in all protectors: refusals as they happen, reservations, cells. */
import { type CellRow, type RefusalRow, type ReservationRow, rowKey } from "../page-messages.ts";
import { Age } from "./age.tsx";
import { HealthMark } from "./health-summary.tsx";
import { detailAddress } from "./protector-table.tsx";
import { store } from "./store.ts";
import { type Column, Table } from "./table.tsx";
import { countText, numberText } from "./words.ts";

const SHOWN_REFUSALS = 30;
const SHOWN_RESERVATIONS = 15;

function ProtectorLink(place: { readonly core: number; readonly namespace: string; readonly name: string }) {
  return (
    <a href={detailAddress(rowKey(place))}>
      <bdi>{`${place.namespace}/${place.name}`}</bdi>
    </a>
  );
}

export function Refusals() {
  const refusals = store.refusals.value;
  const forbidden = store.watches.value.filter(({ what, state }) => what === "Events" && state === "forbidden");
  return (
    <section class="refusals" aria-labelledby="refusals-title">
      <h2 id="refusals-title">Refusals</h2>
      {forbidden.map(({ core, why }) => (
        <p key={core} class="notice">
          Your user may not list and watch Events of {store.hello.value?.cores[core]}, so that refusals there are not
          shown. <span class="soft">{why}</span>
        </p>
      ))}
      <p class="soft">As the webhook's Events say. A disruption that is told to retry in a second makes no Event.</p>
      {refusals.length === 0 ? <p>None.</p> : <RefusalList refusals={refusals.slice(0, SHOWN_REFUSALS)} isLinked />}
    </section>
  );
}

interface RefusalListOptions {
  readonly refusals: readonly RefusalRow[];
  readonly isLinked?: boolean;
}

export function RefusalList({ refusals, isLinked = false }: RefusalListOptions) {
  return (
    <ol class="feed">
      {refusals.map((refusal) => (
        <li key={refusal.id} class={refusal.what === "denied" ? "bad" : "wait"}>
          <p>
            <b>{refusal.what}</b> {refusal.count > 1 ? `${countText(refusal.count, "time")}, last ` : ""}
            <Age sinceMs={refusal.lastMs} /> ago {isLinked ? <ProtectorLink {...refusal} /> : null}
          </p>
          <p class="message">
            <bdi>{refusal.message}</bdi>
          </p>
        </li>
      ))}
    </ol>
  );
}

export function Reservations() {
  const { all, oldest } = store.reservations.value;
  return (
    <section aria-labelledby="reservations-title">
      <h2 id="reservations-title">Reservations</h2>
      {oldest.length === 0 ? (
        <p>None: no disruption is under way.</p>
      ) : (
        <>
          <p class="soft">
            The oldest of {numberText(all)}. A reservation is settled when its disruption has happened, or can't any
            more.
          </p>
          <ReservationTable reservations={oldest.slice(0, SHOWN_RESERVATIONS)} isLinked />
        </>
      )}
    </section>
  );
}

const POD: Column<ReservationRow> = { title: "Pod", cell: ({ pod }) => <bdi>{pod}</bdi> };
const PROTECTOR: Column<ReservationRow> = { title: "Protector", cell: (place) => <ProtectorLink {...place} /> };
const RESERVATION_COLUMNS: readonly Column<ReservationRow>[] = [
  { title: "Cell", cell: ({ cell }) => cell },
  { title: "Operation", cell: ({ operation }) => operation },
  { title: "Holds", class: "number", cell: ({ weight }) => weight },
  { title: "Age", class: "number", cell: ({ sinceMs }) => <Age sinceMs={sinceMs} /> },
];

interface ReservationTableOptions {
  readonly reservations: readonly ReservationRow[];
  readonly isLinked?: boolean;
}

export function ReservationTable({ reservations, isLinked = false }: ReservationTableOptions) {
  return (
    <Table
      label="Reservations, the oldest first"
      rows={reservations}
      keyOf={(one) => `${rowKey(one)}/${one.cell}/${one.pod}/${one.operation}/${one.sinceMs}`}
      columns={[POD, ...(isLinked ? [PROTECTOR] : []), ...RESERVATION_COLUMNS]}
    />
  );
}

const CELL_COLUMNS: readonly Column<CellRow>[] = [
  { title: "Cell", cell: cellName },
  { title: "Protectors", class: "number", cell: ({ protectors }) => numberText(protectors) },
  { title: "Available", class: "number", cell: ({ available }) => numberText(available) },
  { title: "Reserved", class: "number", cell: ({ reserved }) => numberText(reserved) },
  { title: "Heartbeat", class: "number", cell: ({ newestMs }) => <Age sinceMs={newestMs} /> },
  { title: "Furthest behind", class: "number", cell: ({ oldestMs }) => <Age sinceMs={oldestMs} /> },
  { title: "State", cell: cellState },
];

export function Cells() {
  const cells = store.cells.value;
  return (
    <section aria-labelledby="cells-title">
      <h2 id="cells-title">Cells</h2>
      {cells.length === 0 ? (
        <p>None: no aggregator has counted pods.</p>
      ) : (
        <Table
          label="Cells and how far behind they are"
          rows={cells}
          keyOf={({ core, cell }) => `${core}/${cell}`}
          columns={CELL_COLUMNS}
        />
      )}
    </section>
  );
}

function cellName({ core, cell }: CellRow) {
  const cores = store.hello.value?.cores ?? [];
  return (
    <>
      {cell}
      {cores.length > 1 ? <span class="soft"> in {cores[core]}</span> : null}
    </>
  );
}

function cellState({ protectors, onHold, stale, notCounted }: CellRow) {
  const isStale = stale > 0 && stale === protectors;
  const parts = [
    ...(isStale ? ["no heartbeat"] : []),
    ...(onHold > 0 ? [`on hold in ${numberText(onHold)}`] : []),
    ...(stale > 0 && !isStale ? [`stale in ${numberText(stale)}`] : []),
    ...(notCounted > 0 ? [`not counted in ${numberText(notCounted)}`] : []),
  ];
  return (
    <>
      <HealthMark health={parts.length === 0 ? "order" : "attention"} /> {parts.length === 0 ? "ok" : parts.join(", ")}
    </>
  );
}
