/** Paged lists, from the server or from loaded rows. */

import { useState, type ReactNode } from "react";

import type { Paged } from "../api";
import { useHere, useRing, type Query } from "../context";
import { useLast } from "../poll";
import { count } from "../words";
import { Loaded } from "./notice";

type List<T> = {
  /** The list's name for screen readers. */
  label: string;
  /** Shown if the list is empty. */
  empty?: ReactNode;
  children: (data: Paged<T>, refresh: () => void) => ReactNode;
};

type Asked<T> = List<T> & {
  /** The route. */
  what: string;
  query?: Query;
  limit: number;
  /** The server's name for the cursor. */
  cursor?: "after" | "before";
};

/** A list from the server. The previous rows stay while another page or order is loading, so that the focus stays. */
export function Listing<T>({ what, query = {}, limit, cursor = "after", ...list }: Asked<T>) {
  const here = useHere();
  const pages = usePages(JSON.stringify([here.conn, here.ring, what, query]));
  const from = useRing<Paged<T>>(what, { ...query, [cursor]: pages.after, limit });
  const last = useLast(from.data, JSON.stringify({ ...query, sort: null }));
  const busy = from.data === null && from.error === null;
  return (
    <Loaded from={from.error ? from : { ...from, data: last }}>
      {(data) => <Rows {...list} pages={pages} data={data} busy={busy} refresh={from.refresh} />}
    </Loaded>
  );
}

/** Loaded rows, one page at a time. */
export function Sliced<T>({ rows, by = 50, ...list }: List<T> & { rows: T[]; by?: number }) {
  const [at, setAt] = useState(0);
  // The list may have become shorter.
  const start = Math.min(at, Math.max(0, Math.ceil(rows.length / by) - 1) * by);
  const end = start + by;
  const pages = { number: start / by + 1, forth: () => setAt(end), back: () => setAt(start - by) };
  const data = { rows: rows.slice(start, end), next: end < rows.length ? String(end) : null, total: rows.length };
  return <Rows {...list} pages={pages} data={data} />;
}

type Pages = Omit<ReturnType<typeof usePages>, "after">;

function Rows<T>({ pages, data, label, empty, busy = false, refresh = () => {}, children }: List<T> & { pages: Pages; data: Paged<T>; busy?: boolean; refresh?: () => void }) {
  const none = data.rows.length === 0;
  if (none && pages.number === 1 && !data.next) return empty;
  return (
    <div aria-busy={busy}>
      {none ? <p className="muted">{data.next ? "None here; the next page may have some." : "No more here."}</p> : children(data, refresh)}
      <Pager pages={pages} of={data} label={label} busy={busy} />
    </div>
  );
}

/** Cursor paging: the server returns the next cursor, and the page keeps the previous ones. */
function usePages(key: string) {
  const [state, setState] = useState<{ key: string; before: string[] }>({ key, before: [] });
  const before = state.key === key ? state.before : [];
  return {
    after: before.at(-1) ?? null,
    number: before.length + 1,
    forth: (cursor: string) => setState({ key, before: [...before, cursor] }),
    back: () => setState({ key, before: before.slice(0, -1) }),
  };
}

/** The buttons stay in place while a page is loading, so that the keyboard focus stays on them. */
function Pager({ pages, of, label, busy }: { pages: Pages; of: Omit<Paged<unknown>, "rows">; label: string; busy: boolean }) {
  const first = pages.number === 1;
  const total = of.total == null ? null : `${count(of.total)} in all`;
  if (first && !of.next) return total && <p className="muted">{total}.</p>;
  return (
    <nav className="pager" aria-label={`Pages of ${label}`}>
      <button type="button" aria-disabled={first || busy || undefined} onClick={() => !first && !busy && pages.back()}>
        ← Previous
      </button>
      <span role="status">
        Page {pages.number}
        {total && <span className="muted"> · {total}</span>}
      </span>
      <button type="button" aria-disabled={!of.next || busy || undefined} onClick={() => of.next && !busy && pages.forth(of.next)}>
        Next →
      </button>
    </nav>
  );
}
