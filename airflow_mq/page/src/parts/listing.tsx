/** Paged lists, from the server or from loaded rows. */

import type { ReactNode } from "react";

import { useHere, useRing, type Query } from "../context";
import { useLast } from "../poll";
import type { Paged } from "../api";
import { Loaded } from "./notice";
import { Pager, usePages } from "./paging";

type Asked<T> = {
  /** The route, and the list's name for screen readers. */
  what: string;
  label: string;
  query?: Query;
  limit: number;
  /** The server's name for the cursor. */
  cursor?: "after" | "before";
  /** Shown if the list is empty. */
  empty: ReactNode;
  children: (data: Paged<T>, refresh: () => void) => ReactNode;
};

/** A list from the server. The previous rows stay while others are loading. */
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

/** Loaded rows, one page at a time. */
export function Sliced<T>({ rows, label, by = 50, children }: { rows: T[]; label: string; by?: number; children: (rows: T[]) => ReactNode }) {
  const pages = usePages(label);
  // The list may have become shorter.
  const start = Math.min(Number(pages.after ?? 0), Math.max(0, Math.ceil(rows.length / by) - 1) * by);
  const end = start + by;
  return (
    <>
      {children(rows.slice(start, end))}
      <Pager pages={pages} of={{ next: end < rows.length ? String(end) : null, total: rows.length }} label={label} />
    </>
  );
}
