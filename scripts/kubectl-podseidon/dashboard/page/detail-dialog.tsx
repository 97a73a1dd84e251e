/** One protector in full, over the page. Escape and the browser's back button close it. */
import { useEffect, useRef, useState } from "preact/hooks";
import { CHART_WORDS } from "../../../../shared/observe/chart-words.ts";
import { healthOf } from "../../health.ts";
import { type CapacityPoint, type Detail, WINDOW_MS } from "../page-messages.ts";
import { Age } from "./age.tsx";
import { nowMs, repeat } from "./browser-clock.ts";
import { Chart, capacityLines } from "./chart.tsx";
import { readDetail } from "./connection.ts";
import { HealthMark } from "./health-summary.tsx";
import { RefusalList, ReservationTable } from "./lists.tsx";
import { MAX_REFUSALS, store } from "./store.ts";
import { type Column, Table } from "./table.tsx";
import { countText, numberText, STATE_WORDS } from "./words.ts";

/** The detail is read again at this interval, and whenever its row changes. */
const READ_EVERY_MS = 5_000;
/** Core, namespace and name. */
const KEY_PARTS = 3;

export function DetailDialog() {
  const key = store.selected.value;
  const dialog = useRef<HTMLDialogElement>(null);
  const isOpen = key !== undefined;
  useEffect(() => {
    if (isOpen && dialog.current?.open === false) dialog.current.showModal();
    if (!isOpen) dialog.current?.close();
  }, [isOpen]);
  return (
    <dialog ref={dialog} class="detail" aria-labelledby="detail-title" onClose={closeDetail}>
      {key === undefined ? null : <Opened key={key} protector={key} />}
    </dialog>
  );
}

function closeDetail(): void {
  if (location.hash !== "") history.pushState(null, "", location.pathname);
  store.selected.value = undefined;
}

function Opened({ protector }: { readonly protector: string }) {
  const [detail, setDetail] = useState<Detail | undefined>(undefined);
  const [isGone, setGone] = useState(false);
  const row = store.present().get(protector);
  useEffect(() => {
    let isShown = true;
    const read = async (): Promise<void> => {
      const found = await readDetail(protector);
      if (!isShown) return;
      if (found !== undefined) setDetail(found);
      setGone(found === undefined);
    };
    void read();
    const stop = repeat(READ_EVERY_MS, () => void read());
    return () => {
      isShown = false;
      stop();
    };
  }, [protector, row]);
  const [, namespace = "", name = ""] = protector.split("/");
  return (
    <>
      <header>
        <h2 id="detail-title" tabIndex={-1}>
          <bdi>{name}</bdi>{" "}
          <span class="soft">
            <bdi>{namespace}</bdi>
          </span>
        </h2>
        <button type="button" onClick={closeDetail}>
          Close
        </button>
      </header>
      {isGone ? <p class="notice">This protector is gone, or the plugin gives no answer.</p> : null}
      {detail === undefined ? <p>{isGone ? "" : "Reading it ..."}</p> : <Facts detail={detail} />}
    </>
  );
}

function Facts({ detail }: { readonly detail: Detail }) {
  const { row, source, derivation, suspended, reservations, reservationCount, refusals } = detail;
  return (
    <>
      <p class="verdict">
        <HealthMark health={healthOf(row.state)} /> <b>{row.state}</b>. {STATE_WORDS[row.state]}
      </p>
      <dl class="facts">
        <Fact name="Promised" value={countText(row.required, "pod")} />
        <Fact name="Available" value={`${numberText(row.available)} of ${numberText(row.total)}`} />
        <Fact name="Reserved" value={numberText(row.reserved)} />
        <Fact name="Disruptions allowed now" value={numberText(row.allowed)} />
        <Fact name="Source" value={source} />
        {derivation === "" ? null : <Fact name="Derived from" value={derivation} />}
        {suspended === "" ? null : <Fact name="Suspended" value={suspended} />}
      </dl>
      <History points={detail.history} />
      <h3>Cells</h3>
      <Table label="Cells of this protector" rows={detail.cells} keyOf={({ cell }) => cell} columns={CELL_COLUMNS} />
      <h3>Reservations</h3>
      {reservations.length === 0 ? <p>None.</p> : <ReservationTable reservations={reservations} />}
      {reservationCount > reservations.length ? (
        <p>and {numberText(reservationCount - reservations.length)} more</p>
      ) : null}
      <h3>Refusals</h3>
      {refusals.length === 0 ? (
        <p>None among the newest {MAX_REFUSALS} of all protectors.</p>
      ) : (
        <RefusalList refusals={refusals.toReversed()} />
      )}
      <Conditions detail={detail} />
    </>
  );
}

function Fact({ name, value }: { readonly name: string; readonly value: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        <bdi>{value}</bdi>
      </dd>
    </div>
  );
}

function History({ points }: { readonly points: readonly CapacityPoint[] }) {
  const last = points.at(-1);
  if (last === undefined) return null;
  const endMs = nowMs.value;
  const first = endMs - WINDOW_MS;
  // The last point is valid until now. A point from before the window is valid at the window's beginning.
  const shown = [...points.map((point) => ({ ...point, atMs: Math.max(point.atMs, first) })), { ...last, atMs: endMs }];
  const column = (key: keyof CapacityPoint): number[] => shown.map((point) => point[key]);
  const least = Math.min(...shown.map(({ available, required }) => available - required));
  const summary =
    least < 0 ? `At the worst moment ${countText(-least, "pod")} were missing.` : `Never fewer than ${least} to spare.`;
  return (
    <Chart title={CHART_WORDS.capacity} {...{ summary, endMs }} atMs={column("atMs")} lines={capacityLines(column)} />
  );
}

const CELL_COLUMNS: readonly Column<Detail["cells"][number]>[] = [
  { title: "Cell", cell: ({ cell }) => cell },
  { title: "State", cell: ({ state }) => state },
  {
    title: "Available",
    class: "number",
    cell: ({ available, total }) => `${numberText(available)} of ${numberText(total)}`,
  },
  { title: "Reserved", class: "number", cell: ({ reserved }) => numberText(reserved) },
  { title: "Heartbeat", class: "number", cell: ({ heartbeatMs }) => <Age sinceMs={heartbeatMs} /> },
  { title: "Last event", class: "number", cell: ({ lastEventMs }) => <Age sinceMs={lastEventMs} /> },
];

const CONDITION_COLUMNS: readonly Column<Detail["conditions"][number]>[] = [
  { title: "Type", cell: ({ type }) => type },
  { title: "Status", cell: ({ status }) => status },
  { title: "Reason", cell: ({ reason }) => reason },
  { title: "Message", class: "message", cell: ({ message }) => <bdi>{message}</bdi> },
];

function Conditions({ detail: { conditions } }: { readonly detail: Detail }) {
  if (conditions.length === 0) return null;
  return (
    <>
      <h3>Conditions</h3>
      <Table
        label="Conditions of this protector"
        rows={conditions}
        keyOf={({ type }) => type}
        columns={CONDITION_COLUMNS}
      />
    </>
  );
}

/** Opens the detail that the address names. */
export function followAddress(): void {
  const [, ...parts] = location.hash.split("/");
  store.selected.value = parts.length === KEY_PARTS ? parts.map(decoded).join("/") : undefined;
}

/** A user may have typed the address. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
