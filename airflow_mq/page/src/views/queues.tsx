/** The first view: why each queue is waiting, since when, and when its turn comes; and the ring as a picture. */

import { useHere, useRing } from "../context";
import { COMMANDS } from "../commands";
import { Command } from "../parts/command";
import { Filters } from "../parts/filters";
import { Listing } from "../parts/listing";
import { Named } from "../parts/named";
import { Empty, Loaded, Notice } from "../parts/notice";
import { PauseButton, paused } from "../parts/pause";
import { Ring } from "../parts/ring";
import { OverdueNotices, ServedLine, Totals } from "../parts/served";
import { Table, type Column } from "../parts/table";
import { useLast, usePoll, useSettled } from "../poll";
import { useWord } from "../route";
import type { Forecast, ForecastBlock, Overview, Pauses, Queue } from "../types";
import { age, atLeast, bytes, clock, count, hour, localised, many, weight } from "../words";

export function QueuesView() {
  const overview = useRing<Overview>("overview");
  const [pauses, setPauses] = useWord("paused");
  return (
    <Loaded from={overview}>
      {(data) => (
        <>
          <ServedLine overview={data} />
          <OverdueNotices overview={data} />
          {(data.queues > 0 || data.paused > 0) && <Totals overview={data} />}
          {pauses && <PausedQueues onClose={() => setPauses("")} />}
          {data.due && <Delayed due={data.due} />}
          {data.queues > 0 ? <Waiting overview={data} /> : !data.due && <EmptyRing />}
        </>
      )}
    </Loaded>
  );
}

function Waiting({ overview }: { overview: Overview }) {
  const here = useHere();
  const [typed, setTyped] = useWord("search");
  const [sort, setSort] = useWord("sort", "oldest");
  const search = useSettled(typed.trim());
  const turns = useTurns(overview);
  return (
    <div className={overview.arcs.length > 0 ? "split" : undefined}>
      <section aria-label="Queues">
        <div className="row between">
          <h2>Queues</h2>
          <Filters title="Search and sort" active={typed !== ""}>
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
                <option value="oldest">longest wait</option>
                <option value="messages">messages</option>
                <option value="bytes">bytes</option>
                <option value="origin">origin</option>
              </select>
            </label>
            <a className="button" href={here.url("export/queues.csv", { search })} download>
              CSV
            </a>
          </Filters>
        </div>
        <Listing<Queue> what="queues" label="queues" query={{ search, sort }} limit={50} empty={<None search={search} />}>
          {(data) => (
            <>
              <QueueTable rows={data.rows} sort={sort} onSort={setSort} turns={turns} overview={overview} />
              {data.counted === false && (
                <p className="muted" role="status">
                  Not all queues are counted yet: the order covers the counted queues and updates automatically.
                </p>
              )}
            </>
          )}
        </Listing>
      </section>
      {overview.arcs.length > 0 && (
        <section aria-label="The ready ring">
          <h2>The ready ring</h2>
          <Ring
            overview={overview}
            isNext={(arc) => (turns ? turns.of.get(keyOf(arc)) === 1 : !arc.paused && arc.messages > arc.in_flight)}
            lead={(arc) => here.href(arc ? "queue" : "queues", arc ? { origin: arc.origin, priority: arc.priority } : {})}
          />
          <ul className="legend" aria-hidden="true">
            <li>▼ next turn</li>
            <li>
              <i className="hatched" /> paused
            </li>
            <li>
              <i className="inner" /> in flight
            </li>
          </ul>
          <p className="muted fine">
            Each arc is a queue, in the order of turns, and as long as its backlog.
            {overview.rest.queues > 0 && ` The grey arc is ${many(overview.rest.queues, "more queue")}.`} Order: {overview.order}
            {overview.paths && ", with fair shares along paths"}. Block limit: {weight(overview.limit)}.
          </p>
        </section>
      )}
    </div>
  );
}

const BLOCKS_AHEAD = 3;
/** Rings with more ready queues are not forecast as a whole: that takes seconds. */
const MOST_FORECAST = 5_000;

const keyOf = (one: { origin: string; priority: string }) => `${one.priority} ${one.origin}`;

type Turns = { of: Map<string, number>; complete: boolean; blocks: number };

/** Number of the next block that would take something of each queue; null while that is unknown. */
function useTurns(overview: Overview): Turns | null {
  const here = useHere();
  // Without a limit, and in an order that is drawn with each block, there is no forecast.
  const isForeseeable = overview.order !== "shuffle" && (overview.limit !== null || overview.served.last !== null);
  const asked = isForeseeable && overview.ready > 0 && overview.ready <= MOST_FORECAST;
  const key = JSON.stringify([here.conn, here.ring, "turns", asked, overview.last_block?.id, overview.last_block?.state]);
  const load = (signal: AbortSignal) => (asked ? here.post<Forecast>("dry-run", { blocks: BLOCKS_AHEAD }, signal) : Promise.resolve({ blocks: [] }));
  const forecast = usePoll<Forecast>(key, load, 60);
  const last = useLast(forecast.data);
  const blocks = forecast.error ? null : last?.blocks;
  // No blocks: the next one takes nothing, and it is no queue's turn.
  return asked && blocks ? turnsOf(blocks, overview.served.several) : null;
}

function turnsOf(blocks: ForecastBlock[], several: boolean): Turns {
  const of = new Map<string, number>();
  for (const block of [...blocks].reverse()) for (const one of block.by_queue) of.set(keyOf(one), block.number);
  return { of, complete: !several && blocks.length > 0 && blocks.every((one) => one.queues === one.by_queue.length), blocks: blocks.length };
}

/** Badge of each state, and the colour of its meaning: busy, waits for a person or a time, or broken. */
const STATES: Record<Queue["state"], [string, string]> = {
  turn: ["Ready", ""],
  "in flight": ["In flight", "busy"],
  paused: ["Paused", "warn"],
  failed: ["Retries later", "warn"],
  budget: ["Budget used up", "warn"],
  "set aside": ["Set aside", "warn"],
  overdue: ["Overdue", "bad"],
  unserved: ["Not serviced", "bad"],
  stuck: ["Too heavy", "bad"],
};

function Why({ row, turns }: { row: Queue; turns: Turns | null }) {
  // A block takes messages behind those in flight, unless the ring keeps their order.
  const goesOn = row.state === "in flight" && turns?.of.has(keyOf(row));
  const [name, kind] = STATES[goesOn ? "turn" : row.state];
  const words = goesOn ? "Waiting for its turn" : row.paused ? paused(row.paused) : localised(row.why);
  return (
    <>
      <span className={`badge ${kind}`}>{name}</span> <span className="sentence">{words}</span>
    </>
  );
}

type TableProps = { rows: Queue[]; sort: string; onSort: (by: string) => void; turns: Turns | null; overview: Overview };

function QueueTable({ rows, sort, onSort, turns, overview }: TableProps) {
  const here = useHere();
  const columns: Column<Queue>[] = [
    {
      name: "Queue",
      head: true,
      sort: "origin",
      cell: (row) => <Named origin={row.origin} priority={row.priority} />,
    },
    {
      name: "Why it is waiting",
      wide: true,
      cell: (row) => <Why row={row} turns={turns} />,
    },
    { name: "Waited", right: true, sort: "oldest", cell: (row) => (row.oldest ? age(row.oldest) : "–") },
    { name: "Next turn", cell: (row) => nextTurn(row, turns, overview) },
    {
      name: "Messages",
      right: true,
      sort: "messages",
      cell: (row) => (
        <>
          {atLeast(count(row.messages), row.more)}
          <small className="muted"> {atLeast(bytes(row.size), row.more)}</small>
        </>
      ),
    },
    { name: "In flight", right: true, cell: (row) => count(row.in_flight) },
    { name: "Set aside", right: true, cell: (row) => (row.set_aside ? <a href={here.href("set-aside")}>{count(row.set_aside)}</a> : "0") },
  ];
  return <Table caption="Queues" columns={columns} rows={rows} id={keyOf} sorted={sort} onSort={onSort} />;
}

/** When a queue gets its next turn, by the forecast of the next blocks. */
function nextTurn(row: Queue, turns: Turns | null, { served, now }: Overview): string {
  // Several DAGs have several schedules, and a late block has no time.
  const start = Date.parse(served.last ?? "");
  const next = served.next && !served.several && Date.parse(served.next) > Date.parse(now) ? Date.parse(served.next) : null;
  if (row.state === "paused") return "when resumed";
  if (row.state === "set aside") return "after a decision";
  if (row.state === "unserved" || row.state === "stuck") return "none";
  if (!turns || row.ready === 0) return "–";
  const block = turns.of.get(keyOf(row));
  const time = (number: number) => (next ? hour(new Date(start + number * (next - start)).toISOString(), Date.parse(now)) : null);
  if (block === undefined) return turns.complete ? `after ${time(turns.blocks) ?? many(turns.blocks, "block")}` : "–";
  return time(block) ?? ["next block", "second block", "third block"][block - 1]!;
}

/** All paused origins, with and without waiting messages. */
function PausedQueues({ onClose }: { onClose: () => void }) {
  const here = useHere();
  const from = useRing<Pauses>("paused");
  return (
    <section className="card" aria-label="Paused origins">
      <div className="row between">
        <h2>Paused origins</h2>
        <button type="button" onClick={onClose}>
          Close
        </button>
      </div>
      <Loaded from={from}>
        {(data) => (
          <>
            {data.total === 0 && <p className="muted">No origin is paused.</p>}
            <ul className="paused-list">
              {data.rows.map((pause) => (
                <li key={pause.origin} className="row between">
                  <span>
                    <a href={here.href("queue", { origin: pause.origin })}>{pause.origin}</a>
                    {pause.below && " and all below it"} <span className="muted">{paused(pause)}</span>
                  </span>
                  <PauseButton origin={pause.origin} pause={pause} paths={false} onDone={from.refresh} />
                </li>
              ))}
            </ul>
            {data.total > data.rows.length && (
              <>
                <p className="muted">These are the first {count(data.rows.length)} of {count(data.total)}. To list all, run:</p>
                <Command>{COMMANDS.paused(here)}</Command>
              </>
            )}
          </>
        )}
      </Loaded>
    </section>
  );
}

function None({ search }: { search: string }) {
  return search ? (
    <Empty title={`No origin contains “${search}”`}>
      <p>The search matches any part of an origin, in upper or lower case. A queue without messages is not listed.</p>
    </Empty>
  ) : (
    <Empty title="No queues yet">
      <p>The first message of an origin creates its queue.</p>
    </Empty>
  );
}

/** Delayed messages are in no queue: the totals and the table leave them out. */
function Delayed({ due }: { due: string }) {
  return (
    <Notice kind="note">
      Messages are delayed: they are not due yet, or wait for their next attempt. The first one joins its queue at {clock(due)}. To count
      them, run:
      <Command>{COMMANDS.status(useHere())}</Command>
    </Notice>
  );
}

function EmptyRing() {
  const here = useHere();
  return (
    <Empty title="This ring is empty">
      <p>No message waits, is in flight or is set aside. To send one from a terminal:</p>
      <Command>{COMMANDS.enqueue(here)}</Command>
      <p>In a task:</p>
      <Command>{`from airflow_mq.hooks import MessageQueueHook

with MessageQueueHook("${here.conn}").queue("${here.ring}") as queue:
    queue.enqueue_message("acme/orders", b'{"order": 1}')`}</Command>
    </Empty>
  );
}
