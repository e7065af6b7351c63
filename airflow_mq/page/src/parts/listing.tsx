/** Lists, page by page: of the server, or of what is here already. */

import type { ReactNode } from "react";

import { useHere, useRing, type Query } from "../context";
import { useLast } from "../poll";
import type { Paged } from "../api";
import { Loaded } from "./notice";
import { Pager, usePages } from "./paging";

type Asked<T> = {
  /** What is listed: the route, and its name for screen readers. */
  what: string;
  label: string;
  query?: Query;
  limit: number;
  /** What the server calls the place to go on from. */
  cursor?: "after" | "before";
  /** Said where there is nothing at all. */
  empty: ReactNode;
  children: (data: Paged<T>, refresh: () => void) => ReactNode;
};

/** A list of the server's. While another page, or another search, is on its way, the last one stays. */
export function Listing<T>({ what, label, query = {}, limit, cursor = "after", empty, children }: Asked<T>) {
  const here = useHere();
  const pages = usePages(JSON.stringify([here.conn, here.ring, what, query]));
  const from = useRing<Paged<T>>(what, { ...query, [cursor]: pages.after, limit });
  const last = useLast(from.data);
  const busy = from.data === null && from.error === null;
  return (
    <Loaded from={from.error ? from : { ...from, data: last }}>
      {(data) =>
        data.rows.length === 0 && pages.number === 1 && !data.next ? (
          empty
        ) : (
          <div aria-busy={busy}>
            {data.rows.length === 0 ? <p className="muted">None here; the next page may have some.</p> : children(data, from.refresh)}
            <Pager pages={pages} of={data} label={label} busy={busy} />
          </div>
        )
      }
    </Loaded>
  );
}

/** What is here already, so many rows at a time. */
export function Sliced<T>({ rows, label, by = 50, children }: { rows: T[]; label: string; by?: number; children: (rows: T[]) => ReactNode }) {
  const pages = usePages(label);
  // There may be fewer than there were.
  const start = Math.min(Number(pages.after ?? 0), Math.max(0, Math.ceil(rows.length / by) - 1) * by);
  const end = start + by;
  return (
    <>
      {children(rows.slice(start, end))}
      <Pager pages={pages} of={{ next: end < rows.length ? String(end) : null, total: rows.length }} label={label} />
    </>
  );
}
