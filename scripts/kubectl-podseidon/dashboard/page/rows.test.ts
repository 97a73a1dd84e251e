import { describe, expect, test } from "vitest";
import type { ProtectorRow } from "../page-messages.ts";
import { filterRows, NO_FILTER, type RowFilter, type SortKey, sortRows } from "./rows.ts";

function row(name: string, more: Partial<ProtectorRow> = {}): ProtectorRow {
  const counts = { required: 3, available: 4, total: 4, reserved: 0, allowed: 1 };
  return { core: 0, namespace: "shop", name, state: "ok", ...counts, cells: [0], cellsOk: 1, oldestMs: 0, ...more };
}

const rows = [
  row("web"),
  row("cart", { state: "busy", reserved: 1, oldestMs: 2000 }),
  row("pay", { namespace: "bank", state: "below minimum", available: 2, cells: [1] }),
  row("ledger", {
    namespace: "bank",
    state: "below minimum",
    available: 1,
    cells: [0, 1],
    reserved: 2,
    oldestMs: 1000,
  }),
];
const names = (found: readonly ProtectorRow[]): readonly string[] => found.map(({ name }) => name);

test.each<[Partial<RowFilter>, readonly string[]]>([
  [{}, ["web", "cart", "pay", "ledger"]],
  [{ text: "bank" }, ["pay", "ledger"]],
  [{ text: "BANK led" }, ["ledger"]],
  [{ state: "busy" }, ["cart"]],
  [{ health: "trouble" }, ["pay", "ledger"]],
  [{ namespace: "shop" }, ["web", "cart"]],
  [{ cell: 1 }, ["pay", "ledger"]],
  [{ cell: 1, text: "pay" }, ["pay"]],
])("%j finds %j", (filter, expected) => {
  expect(names(filterRows(rows, { ...NO_FILTER, ...filter }))).toEqual(expected);
});

describe("the order", () => {
  test.each<[SortKey, boolean, readonly string[]]>([
    ["state", false, ["ledger", "pay", "cart", "web"]],
    ["state", true, ["web", "cart", "pay", "ledger"]],
    ["name", false, ["ledger", "pay", "cart", "web"]],
    ["spare", false, ["ledger", "pay", "cart", "web"]],
    ["reserved", false, ["ledger", "cart", "pay", "web"]],
    ["oldest", false, ["ledger", "cart", "pay", "web"]],
  ])("by %s, reversed: %s", (key, isReversed, expected) => {
    expect(names(sortRows(rows, { key, isReversed }))).toEqual(expected);
  });
});
