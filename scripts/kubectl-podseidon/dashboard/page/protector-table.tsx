/** The protectors, in pages: screen readers and browsers can handle fifty rows, but not five thousand. */
import { HEALTH_STATES, healthOf } from "../../health.ts";
import { type ProtectorRow, rowKey } from "../page-messages.ts";
import { Age } from "./age.tsx";
import { HealthMark } from "./health-summary.tsx";
import { NO_FILTER, type RowFilter, type SortKey, spareOf } from "./rows.ts";
import { store } from "./store.ts";
import { Wide } from "./wide.tsx";
import { countText, numberText } from "./words.ts";

export const SEARCH_ID = "search";

function change(filter: Partial<RowFilter>): void {
  store.filter.value = { ...store.filter.value, ...filter };
  store.page.value = 0;
}

export function ProtectorTable() {
  return (
    <section class="protectors" aria-labelledby="protectors-title">
      <h2 id="protectors-title">Protectors</h2>
      <Filters />
      <Wide label="Protectors, the worst first unless another order is chosen">
        <table id="protectors" onKeyDown={moveInTable}>
          <caption class="hidden">Protectors, the worst first unless another order is chosen</caption>
          <thead>
            <tr>
              <Head sort="state">State</Head>
              <Head sort="name">Protector</Head>
              <th scope="col">Namespace</th>
              <th scope="col" class="number">
                Promised
              </th>
              <th scope="col" class="number">
                Available
              </th>
              <Head sort="spare" isNumber>
                Spare
              </Head>
              <Head sort="reserved" isNumber>
                Reserved
              </Head>
              <Head sort="oldest" isNumber>
                Oldest
              </Head>
              <th scope="col" class="number">
                Cells
              </th>
            </tr>
          </thead>
          <tbody>
            {store.shown.value.map((row) => (
              <Row key={rowKey(row)} row={row} />
            ))}
          </tbody>
        </table>
      </Wide>
      <Pages />
    </section>
  );
}

function Filters() {
  const { text, state, namespace, cell } = store.filter.value;
  const names = store.cellNames.value;
  const isFiltered = store.filter.value !== NO_FILTER;
  return (
    <search class="filters" aria-label="Protectors">
      <label>
        Name or namespace
        <input
          id={SEARCH_ID}
          type="search"
          value={text}
          autocomplete="off"
          spellcheck={false}
          aria-keyshortcuts="/"
          onInput={({ currentTarget }) => change({ text: currentTarget.value })}
        />
      </label>
      <Choice
        label="State"
        value={state}
        options={HEALTH_STATES.map((one) => [one, one] as const)}
        choose={(chosen) => change({ state: HEALTH_STATES.find((one) => one === chosen), health: undefined })}
      />
      <Choice
        label="Namespace"
        value={namespace}
        options={store.namespaces.value.map((one) => [one, one] as const)}
        choose={(chosen) => change({ namespace: chosen })}
      />
      <Choice
        label="Cell"
        value={cell === undefined ? undefined : String(cell)}
        options={names.map((one, index) => [String(index), one] as const)}
        choose={(chosen) => change({ cell: chosen === undefined ? undefined : Number(chosen) })}
      />
      <button
        type="button"
        disabled={!isFiltered}
        onClick={() => {
          store.filter.value = NO_FILTER;
        }}
      >
        Show all
      </button>
    </search>
  );
}

interface ChoiceOptions {
  readonly label: string;
  readonly value: string | undefined;
  readonly options: readonly (readonly [value: string, text: string])[];
  readonly choose: (value: string | undefined) => void;
}

function Choice({ label, value, options, choose }: ChoiceOptions) {
  return (
    <label>
      {label}
      <select value={value ?? ""} onChange={({ currentTarget }) => choose(currentTarget.value || undefined)}>
        <option value="">all</option>
        {options.map(([one, text]) => (
          <option key={one} value={one}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}

interface HeadOptions {
  readonly sort: SortKey;
  readonly isNumber?: boolean;
  readonly children: string;
}

function Head({ sort, isNumber = false, children }: HeadOptions) {
  const { key, isReversed } = store.order.value;
  const isSorted = key === sort;
  const direction = isSorted ? (isReversed ? "descending" : "ascending") : undefined;
  return (
    <th scope="col" class={isNumber ? "number" : ""} {...(direction === undefined ? {} : { "aria-sort": direction })}>
      <button
        type="button"
        class="sort"
        onClick={() => {
          store.order.value = { key: sort, isReversed: isSorted && !isReversed };
        }}
      >
        {children}
        <span aria-hidden="true">{isSorted ? (isReversed ? " ▴" : " ▾") : ""}</span>
      </button>
    </th>
  );
}

/** The address of a detail: the browser's back button closes it. */
export function detailAddress(key: string): string {
  return `#/${key.split("/").map(encodeURIComponent).join("/")}`;
}

function Row({ row }: { readonly row: ProtectorRow }) {
  const { core, namespace, name, state, required, available, total, reserved, oldestMs, cells, cellsOk } = row;
  const cores = store.hello.value?.cores ?? [];
  const spare = spareOf(row);
  return (
    <tr>
      <td class="state">
        <HealthMark health={healthOf(state)} /> {state}
      </td>
      <th scope="row">
        <a href={detailAddress(rowKey(row))}>
          <bdi>{name}</bdi>
        </a>
      </th>
      <td class="soft">
        <bdi>{namespace}</bdi>
        {cores.length > 1 ? ` in ${cores[core]}` : ""}
      </td>
      <td class="number">{numberText(required)}</td>
      <td class="number">
        {numberText(available)} <span class="soft">of {numberText(total)}</span>
      </td>
      <td class={`number ${spare < 0 ? "lacking" : ""}`}>{numberText(spare)}</td>
      <td class="number">{numberText(reserved)}</td>
      <td class="number">
        <Age sinceMs={oldestMs} />
      </td>
      <td class="number">
        {cellsOk}/{cells.length}
      </td>
    </tr>
  );
}

function Pages() {
  const count = store.pages.value;
  const at = store.shownPage.value;
  const found = store.found.value.length;
  const turn = (by: number): void => {
    store.page.value = Math.min(count - 1, Math.max(0, at + by));
  };
  return (
    <nav class="pages" aria-label="Pages of protectors">
      <button type="button" disabled={at === 0} onClick={() => turn(-1)}>
        Previous page
      </button>
      <span role="status">
        Page {numberText(at + 1)} of {numberText(count)}, {countText(found, "protector")}
      </span>
      <button type="button" disabled={at >= count - 1} onClick={() => turn(1)}>
        Next page
      </button>
    </nav>
  );
}

const MOVES: Readonly<Record<string, (at: number, last: number) => number>> = {
  ArrowDown: (at, last) => Math.min(last, at + 1),
  ArrowUp: (at) => Math.max(0, at - 1),
  Home: () => 0,
  End: (_, last) => last,
};

/** The arrow keys move from protector to protector, like the tab key. */
function moveInTable(event: KeyboardEvent & { readonly currentTarget: HTMLTableElement }): void {
  const move = MOVES[event.key];
  const links = [...event.currentTarget.querySelectorAll<HTMLAnchorElement>("tbody a")];
  const at = document.activeElement instanceof HTMLAnchorElement ? links.indexOf(document.activeElement) : -1;
  if (move === undefined || at < 0) return;
  event.preventDefault();
  links[move(at, links.length - 1)]?.focus();
}
