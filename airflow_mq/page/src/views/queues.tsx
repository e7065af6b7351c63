/** All queues: backlog, age, promised and received share, and why each is waiting. */

import { useHere, useRing } from "../context";
import { Listing } from "../parts/listing";
import { Empty } from "../parts/notice";
import { PauseButton, paused, PausedBadge } from "../parts/pause";
import { Table, type Column } from "../parts/table";
import { useSettled } from "../poll";
import { useWord } from "../route";
import type { Pauses, Queue } from "../types";
import { age, atLeast, bytes, count, localised, many, percent, rate } from "../words";

export function QueuesView() {
  const here = useHere();
  const [typed, setTyped] = useWord("search");
  const [sort, setSort] = useWord("sort", "messages");
  const search = useSettled(typed.trim());
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
          <a className="button" href={here.url("export/queues.csv", { search })} download>
            CSV
          </a>
        </div>
      </div>
      <PausedQueues />
      <Listing<Queue> what="queues" label="queues" query={{ search, sort }} limit={50} empty={<None search={search} />}>
        {(data) => (
          <>
            <QueueTable rows={data.rows} sort={sort} onSort={setSort} />
            {data.counted === false && (
              <p className="muted" role="status">
                Not all queues are counted yet: the order covers the counted queues and updates automatically.
              </p>
            )}
          </>
        )}
      </Listing>
    </>
  );
}

/** All paused origins, with and without waiting messages. */
function PausedQueues() {
  const here = useHere();
  const [shown, setShown] = useWord("paused");
  const { data, refresh } = useRing<Pauses>("paused");
  if (!data || data.total === 0) return null;
  return (
    <details className="card" open={shown !== ""} onToggle={(event) => event.currentTarget.open !== (shown !== "") && setShown(event.currentTarget.open ? "shown" : "")}>
      <summary>{many(data.total, "origin is", "origins are")} paused</summary>
      <ul className="paused-list">
        {data.rows.map((pause) => (
          <li key={pause.origin} className="row between">
            <span>
              <a href={here.href("queue", { origin: pause.origin })}>{pause.origin}</a>
              {pause.below && " and all below it"} <span className="muted">{paused(pause)}</span>
            </span>
            <PauseButton origin={pause.origin} pause={pause} paths={false} onDone={refresh} />
          </li>
        ))}
      </ul>
      {data.total > data.rows.length && <p className="muted">These are the first {count(data.rows.length)}; <code>airflow-mq queue paused</code> lists all.</p>}
    </details>
  );
}

function None({ search }: { search: string }) {
  return search ? (
    <Empty title={`No origin contains “${search}”`}>
      <p>The search matches any part of an origin, in upper or lower case.</p>
    </Empty>
  ) : (
    <Empty title="No queues yet">
      <p>The first message of an origin creates its queue.</p>
    </Empty>
  );
}

function QueueTable({ rows, sort, onSort }: { rows: Queue[]; sort: string; onSort: (by: string) => void }) {
  const here = useHere();
  const columns: Column<Queue>[] = [
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
    { name: "Bytes", right: true, sort: "bytes", cell: (row) => atLeast(bytes(row.size), row.more) },
    { name: "Oldest", right: true, sort: "oldest", cell: (row) => (row.oldest ? age(row.oldest) : "–") },
    { name: "In flight", right: true, cell: (row) => count(row.in_flight) },
    {
      name: "Set aside",
      right: true,
      cell: (row) => (row.set_aside ? <a href={here.href("set-aside")}>{count(row.set_aside)}</a> : "0"),
    },
    { name: "Share received / promised", right: true, sort: "received", cell: (row) => <Share row={row} /> },
    { name: "In", right: true, cell: (row) => rate(row.in_rate) },
    { name: "Out", right: true, cell: (row) => rate(row.out_rate) },
    { name: "Why it is waiting", cell: (row) => <span className="why sentence">{localised(row.why)}</span> },
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

/** Received share as a bar, promised share as a mark on it. */
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
