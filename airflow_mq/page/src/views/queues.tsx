/** Every queue: how much waits, since when, what it is promised and gets, and why it waits. */

import { useEffect, useState } from "react";

import { useHere, useRing } from "../context";
import { Empty, Loaded } from "../parts/notice";
import { Pager, usePages } from "../parts/paging";
import { PausedBadge } from "../parts/pause";
import { Table, type Column } from "../parts/table";
import type { Paged, QueueRow } from "../types";
import { age, atLeast, bytes, count, percent, rate } from "../words";

/** What was typed, once nothing more is typed for a moment. */
export function useSettled(value: string, millis = 250): string {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), millis);
    return () => clearTimeout(timer);
  }, [value, millis]);
  return settled;
}

export function QueuesView() {
  const here = useHere();
  const [typed, setTyped] = useState("");
  const [sort, setSort] = useState("messages");
  const search = useSettled(typed.trim());
  const pages = usePages(JSON.stringify([here.conn, here.ring, search, sort]));
  const rows = useRing<Paged<QueueRow>>("queues", { search, sort, after: pages.after, limit: 50 });
  return (
    <>
      <div className="row between">
        <h2>Queues</h2>
        <div className="row">
          <input
            type="search"
            aria-label="Search queues by their origin"
            placeholder="Search origins"
            value={typed}
            onChange={(event) => setTyped(event.target.value)}
          />
          <label className="row">
            <span className="muted">Sort by</span>
            <select value={sort} onChange={(event) => setSort(event.target.value)}>
              <option value="messages">messages</option>
              <option value="bytes">bytes</option>
              <option value="oldest">oldest</option>
              <option value="received">share received</option>
              <option value="origin">origin</option>
            </select>
          </label>
          <a className="button" href={here.url("export/queues.csv")} download>
            CSV
          </a>
        </div>
      </div>
      <Loaded from={rows}>
        {(data) =>
          data.rows.length === 0 ? (
            <None search={search} />
          ) : (
            <>
              <QueueTable rows={data.rows} sort={sort} onSort={setSort} />
              {data.counted === false && (
                <p className="muted" role="status">
                  Not every queue is counted yet: the order is that of those that are, and gets better by itself.
                </p>
              )}
              <Pager pages={pages} of={data} />
            </>
          )
        }
      </Loaded>
    </>
  );
}

function None({ search }: { search: string }) {
  return search ? (
    <Empty title={`No origin contains “${search}”`}>
      <p>Search looks for the letters as they are written, upper and lower case apart.</p>
    </Empty>
  ) : (
    <Empty title="No queues yet">
      <p>A queue begins with the first message of its origin. Nothing has to be declared.</p>
    </Empty>
  );
}

function QueueTable({ rows, sort, onSort }: { rows: QueueRow[]; sort: string; onSort: (by: string) => void }) {
  const here = useHere();
  const columns: Column<QueueRow>[] = [
    {
      name: "Queue",
      head: true,
      sort: "origin",
      cell: (row) => (
        <>
          <a href={here.href("queue", { origin: row.origin, priority: row.priority })}>{row.origin}</a>
          {row.priority === "high" && <span className="badge">high</span>}
          {row.paused && <PausedBadge paused={row.paused} />}
        </>
      ),
    },
    { name: "Depth", right: true, sort: "messages", cell: (row) => atLeast(count(row.messages), row.more) },
    { name: "Bytes", right: true, sort: "bytes", cell: (row) => atLeast(bytes(row.bytes), row.more) },
    { name: "Oldest", right: true, sort: "oldest", cell: (row) => (row.oldest ? age(row.oldest) : "–") },
    { name: "In flight", right: true, cell: (row) => count(row.in_flight) },
    {
      name: "Set aside",
      right: true,
      cell: (row) => (row.set_aside ? <a href={here.href("aside")}>{count(row.set_aside)}</a> : "0"),
    },
    { name: "Share received / promised", right: true, sort: "received", cell: (row) => <Share row={row} /> },
    { name: "In", right: true, cell: (row) => rate(row.in_rate) },
    { name: "Out", right: true, cell: (row) => rate(row.out_rate) },
    { name: "Why it waits", cell: (row) => <span className="why sentence">{row.why}</span> },
  ];
  return (
    <Table
      caption="Queues"
      columns={columns}
      rows={rows}
      id={(row) => `${row.priority} ${row.origin}`}
      sorted={sort}
      onSort={onSort}
    />
  );
}

/** Received as a bar, promised as a mark on it. */
export function Share({ row }: { row: { promised: number | null; received: number | null } }) {
  const full = Math.max(row.promised ?? 0, row.received ?? 0, 0.0001);
  return (
    <span className="share">
      <svg width="60" height="10" aria-hidden="true">
        <rect className="share-ground" width="60" height="10" rx="2" />
        <rect className="share-fill" width={(56 * (row.received ?? 0)) / full} height="10" rx="2" />
        {row.promised !== null && <rect className="share-mark" x={(56 * row.promised) / full} width="2.5" height="10" />}
      </svg>{" "}
      {percent(row.received)} / {percent(row.promised)}
    </span>
  );
}
