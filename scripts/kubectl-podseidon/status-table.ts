/** Protectors, one line each. Pure. */
import { age, table } from "./invocation/output.ts";
import { type ProtectorView, presentCells } from "./view.ts";

export interface TableStyle {
  readonly allNamespaces: boolean;
  readonly isWide: boolean;
}

/** Has a column of the namespace only where there are several. */
export function statusTable(views: readonly ProtectorView[], style: TableStyle): string {
  return table(
    headOf(style),
    views.map((view) => rowOf(view, style)),
  );
}

export function headOf({ allNamespaces, isWide }: TableStyle): readonly string[] {
  const wide = isWide ? ["SOURCE", "PROMISE", "SUSPENDED UNTIL"] : [];
  const head = ["NAME", "REQUIRED", "AVAILABLE", "RESERVED", "ALLOWED", "CELLS", "OLDEST", ...wide, "STATE"];
  return allNamespaces ? ["NAMESPACE", ...head] : head;
}

/** A view whose state may also be `deleted`. */
export type ShownView = Omit<ProtectorView, "state"> & { readonly state: ProtectorView["state"] | "deleted" };

export function rowOf(view: ShownView, { allNamespaces, isWide }: TableStyle): readonly string[] {
  const { suspended } = view;
  const until = suspended === undefined ? "-" : (suspended.until ?? "it is resumed");
  return [
    ...(allNamespaces ? [view.namespace] : []),
    view.name,
    String(view.required),
    `${view.available}/${view.total}`,
    String(view.reserved),
    String(view.allowed),
    cellsText(view),
    age(view.oldestReservationMs),
    ...(isWide ? [view.source ?? "-", view.derivation ?? "-", until] : []),
    view.state,
  ];
}

function cellsText(view: ShownView): string {
  const present = presentCells(view);
  const good = present.filter(({ state }) => state === "ok").length;
  return `${good}/${present.length}`;
}
