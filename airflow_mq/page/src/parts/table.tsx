/** A table; on a narrow screen it looks like cards and stays a table to screen readers. */

import type { ReactNode } from "react";

export type Column<T> = {
  name: string;
  cell: (row: T) => ReactNode;
  /** Align right, for numbers. */
  right?: boolean;
  /** Sort key, if the server can sort by this column: numbers from the largest on, others from the smallest on. */
  sort?: string;
  /** The row's header cell. */
  head?: boolean;
  /** On a narrow screen, a line of its own. */
  wide?: boolean;
};

type Props<T> = {
  caption: string;
  columns: Column<T>[];
  rows: T[];
  id: (row: T) => string;
  sorted?: string;
  onSort?: (by: string) => void;
  mark?: (row: T) => boolean;
};

export function Table<T>({ caption, columns, rows, id, sorted, onSort, mark }: Props<T>) {
  return (
    <table role="table" className="table" aria-label={caption}>
      <thead role="rowgroup">
        <tr role="row">
          {columns.map((column) => (
            <th
              key={column.name}
              role="columnheader"
              scope="col"
              className={column.right ? "right" : undefined}
              aria-sort={column.sort && sorted === column.sort ? (column.right ? "descending" : "ascending") : undefined}
            >
              {column.sort && onSort ? (
                <button type="button" className="plain" onClick={() => onSort(column.sort!)}>
                  {column.name}
                  <span aria-hidden="true">{sorted === column.sort && (column.right ? "▾" : "▴")}</span>
                </button>
              ) : (
                column.name
              )}
            </th>
          ))}
        </tr>
      </thead>
      <tbody role="rowgroup">
        {rows.map((row) => (
          <tr key={id(row)} role="row" className={mark?.(row) ? "marked" : undefined}>
            {columns.map((column) => {
              const cell = column.cell(row);
              return column.head ? (
                <th key={column.name} role="rowheader" scope="row">
                  {cell}
                </th>
              ) : (
                <td key={column.name} role="cell" data-name={column.name} className={classes(column, cell)}>
                  <span>{cell}</span>
                </td>
              );
            })}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** A narrow screen leaves out zeros. */
const classes = (column: { right?: boolean; wide?: boolean }, cell: ReactNode) =>
  [column.right && "right", column.wide && "wide", cell === "0" && "zero"].filter(Boolean).join(" ") || undefined;
