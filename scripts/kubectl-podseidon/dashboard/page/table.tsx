import type { ComponentChildren } from "preact";
import { Wide } from "./wide.tsx";

export interface Column<Row> {
  readonly title: string;
  readonly class?: "number" | "message";
  readonly cell: (row: Row) => ComponentChildren;
}

interface TableOptions<Row> {
  readonly label: string;
  readonly rows: readonly Row[];
  readonly keyOf: (row: Row) => string;
  /** The first one names the row. */
  readonly columns: readonly Column<Row>[];
}

export function Table<Row>({ label, rows, keyOf, columns: [first, ...others] }: TableOptions<Row>) {
  return (
    <Wide label={label}>
      <table>
        <caption class="hidden">{label}</caption>
        <thead>
          <tr>
            <th scope="col">{first?.title}</th>
            {others.map((column) => (
              <th key={column.title} scope="col" class={column.class === "number" ? "number" : undefined}>
                {column.title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={keyOf(row)}>
              <th scope="row">{first?.cell(row)}</th>
              {others.map((column) => (
                <td key={column.title} class={column.class}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </Wide>
  );
}
