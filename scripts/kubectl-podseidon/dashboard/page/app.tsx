import { Announcer } from "./announcer.tsx";
import { nowMs } from "./browser-clock.ts";
import { DetailDialog } from "./detail-dialog.tsx";
import { FleetCharts } from "./fleet-charts.tsx";
import { HealthSummary } from "./health-summary.tsx";
import { Cells, Refusals, Reservations } from "./lists.tsx";
import { ProtectorTable } from "./protector-table.tsx";
import { store } from "./store.ts";
import { clockText, countText } from "./words.ts";

/** The plugin says something every five seconds. */
const SILENT_AFTER_MS = 12_000;

export function App() {
  const hello = store.hello.value;
  return (
    <>
      <a class="skip" href="#protectors">
        Skip to the protectors
      </a>
      <header class="top">
        <h1>podseidon</h1>
        {hello === undefined ? null : (
          <p class="soft">
            {hello.cores.join(", ")}
            {hello.namespace === "" ? ", all namespaces" : `, namespace ${hello.namespace}`}
          </p>
        )}
        <Liveness />
      </header>
      <main>{hello === undefined ? <p>Waiting for the plugin ...</p> : <Everything />}</main>
      <DetailDialog />
      <Announcer />
    </>
  );
}

function Everything() {
  const isRead = store.watches.value.some(({ what, state }) => what === "protectors" && state === "live");
  return (
    <>
      {store.present().size === 0 ? (
        <p class="notice">{isRead ? "There are no protectors." : "Reading the protectors ..."}</p>
      ) : null}
      <HealthSummary />
      <FleetCharts />
      <div class="columns">
        <ProtectorTable />
        <Refusals />
      </div>
      <div class="columns even">
        <Reservations />
        <Cells />
      </div>
    </>
  );
}

/** Whether the shown data is current, in words. */
function Liveness() {
  const hello = store.hello.value;
  const heardMs = store.heardMs.value;
  if (hello === undefined) return null;
  const isSilent = !store.isConnected.value || nowMs.value - heardMs > SILENT_AFTER_MS;
  const stale = store.watches.value.filter(({ state }) => state === "stale");
  if (isSilent)
    return (
      <p class="live stale" role="status">
        <b>Stale:</b> the plugin gives no answer since {clockText(heardMs)}. Does it still run?
      </p>
    );
  if (stale.length > 0)
    return (
      <div class="live stale" role="status">
        {stale.map(({ core, what, sinceMs, why }) => (
          <p key={`${core}/${what}`}>
            <b>Stale:</b> {what} of {hello.cores[core]} are not current since {clockText(sinceMs)}: <bdi>{why}</bdi>
          </p>
        ))}
      </div>
    );
  return (
    <p class="live" role="status">
      <span aria-hidden="true">● </span>Live. {countText(store.present().size, "protector")}, recorded since{" "}
      {clockText(hello.startedMs)}
    </p>
  );
}
