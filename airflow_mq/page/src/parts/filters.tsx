/** Filters of a list. */

import { useState, useSyncExternalStore, type ReactNode } from "react";

const narrow = matchMedia("(max-width: 900px)");
const watch = (changed: () => void) => {
  narrow.addEventListener("change", changed);
  return () => narrow.removeEventListener("change", changed);
};

/** Filters are folded on a narrow screen, so that the rows come first. */
export function Filters({ title, active, children }: { title: string; active: boolean; children: ReactNode }) {
  const folded = useSyncExternalStore(watch, () => narrow.matches);
  const [open, setOpen] = useState(active);
  if (!folded) return <div className="row">{children}</div>;
  return (
    <details open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{title}</summary>
      <div className="row">{children}</div>
    </details>
  );
}
