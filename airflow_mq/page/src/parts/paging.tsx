/** Pages by cursor: the server says where the next one begins, and the way back is remembered here. */

import { useState } from "react";

import type { Paged } from "../types";
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

export function Pager({ pages, of }: { pages: ReturnType<typeof usePages>; of: Paged<unknown> }) {
  if (pages.number === 1 && !of.next) return of.total != null ? <p className="muted">{count(of.total)} in all.</p> : null;
  return (
    <nav className="pager" aria-label="Pages">
      <button type="button" disabled={pages.number === 1} onClick={pages.back}>
        ← Before
      </button>
      <span>
        Page {pages.number}
        {of.total != null && <span className="muted"> · {count(of.total)} in all</span>}
      </span>
      <button type="button" disabled={!of.next} onClick={() => of.next && pages.forth(of.next)}>
        Next →
      </button>
    </nav>
  );
}
