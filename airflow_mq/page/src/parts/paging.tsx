/** Cursor paging: the server returns the next cursor, and the page keeps the previous ones. */

import { useState } from "react";

import type { Paged } from "../api";
import { count } from "../words";

export function usePages(key: string) {
  const [state, setState] = useState<{ key: string; before: string[] }>({ key, before: [] });
  const before = state.key === key ? state.before : [];
  return {
    after: before.at(-1) ?? null,
    number: before.length + 1,
    forth: (cursor: string) => setState({ key, before: [...before, cursor] }),
    back: () => setState({ key, before: before.slice(0, -1) }),
  };
}

type Props = { pages: ReturnType<typeof usePages>; of: Omit<Paged<unknown>, "rows">; label: string; busy?: boolean };

/** The buttons stay in place while a page is loading, so that the keyboard focus stays on them. */
export function Pager({ pages, of, label, busy = false }: Props) {
  if (pages.number === 1 && !of.next) return of.total != null ? <p className="muted">{count(of.total)} in all.</p> : null;
  const first = pages.number === 1;
  return (
    <nav className="pager" aria-label={`Pages of ${label}`}>
      <button type="button" aria-disabled={first || busy || undefined} onClick={() => !first && !busy && pages.back()}>
        ← Before
      </button>
      <span role="status">
        Page {pages.number}
        {of.total != null && <span className="muted"> · {count(of.total)} in all</span>}
      </span>
      <button type="button" aria-disabled={!of.next || busy || undefined} onClick={() => of.next && !busy && pages.forth(of.next)}>
        Next →
      </button>
    </nav>
  );
}
