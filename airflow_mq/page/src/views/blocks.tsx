/** What the last blocks did: who took how much of the limit, and in which run. */

import { useState } from "react";

import { below } from "../api";
import { useHere, useRing } from "../context";
import { Bars, Choice, Legend, type Bar, type Dimension } from "../parts/bars";
import { Empty, Loaded } from "../parts/notice";
import { Pager, usePages } from "../parts/paging";
import { Table, type Column } from "../parts/table";
import type { BlockRow, Paged, Part } from "../types";
import { age, clock, count, span, weight } from "../words";

export const DIMENSIONS: Record<Dimension, string> = { time: "Time", size: "Size" };

export function BlocksView({ block }: { block: string | null }) {
  const here = useHere();
  const pages = usePages(JSON.stringify([here.conn, here.ring]));
  const blocks = useRing<Paged<BlockRow>>("blocks", { before: pages.after, limit: 25 });
  const [by, setBy] = useState<Dimension>("time");
  const [chosen, setChosen] = useState<string | null>(block);
  return (
    <>
      <div className="row between">
        <h2>Blocks over time</h2>
        <Choice label="Part of the weight" value={by} of={DIMENSIONS} onChange={setBy} />
      </div>
      <Loaded from={blocks}>
        {(data) =>
          data.rows.length === 0 ? (
            <NoBlocks />
          ) : (
            <>
              <Bars
                label="Weight of blocks by queue, against their limit; the latest to the right"
                bars={[...data.rows].reverse().map(bar)}
                by={by}
                chosen={chosen}
                onPick={setChosen}
              />
              <Legend origins={origins(data.rows)} />
              <Chosen block={data.rows.find((row) => String(row.id) === chosen)} />
              <BlockTable rows={data.rows} chosen={chosen} onPick={setChosen} />
              <Pager pages={pages} of={data} />
            </>
          )
        }
      </Loaded>
    </>
  );
}

const bar = (row: BlockRow): Bar => ({ ...row, id: String(row.id), name: String(row.id) });

/** The origins that are seen in a picture, the heaviest first, and the rest last. */
export function origins(rows: { by_queue: Part[] }[], most = 12): (string | null)[] {
  const sums = new Map<string | null, number>();
  for (const row of rows)
    for (const one of row.by_queue) sums.set(one.origin, (sums.get(one.origin) ?? 0) + one.weight.time + one.weight.size / 1e9);
  const named = [...sums].filter(([origin]) => origin !== null).sort((a, b) => b[1] - a[1]);
  const shown: (string | null)[] = named.slice(0, most).map(([origin]) => origin);
  return sums.has(null) ? [...shown, null] : shown;
}

function NoBlocks() {
  const here = useHere();
  return (
    <Empty title="No block yet">
      <p>
        A block is what one run services: as many messages as fit its limit, taken fairly from all queues. The DAG{" "}
        <code>scheduled_block</code> plans one every few minutes; unpause and trigger it. What the first one would take is under{" "}
        <a href={here.href("next")}>Next block</a>.
      </p>
    </Empty>
  );
}

const took = (row: BlockRow) =>
  row.ended_at ? span((Date.parse(row.ended_at) - Date.parse(row.planned_at)) / 1000) : `since ${age(row.planned_at)}`;

function BlockTable({ rows, chosen, onPick }: { rows: BlockRow[]; chosen: string | null; onPick: (id: string) => void }) {
  const columns: Column<BlockRow>[] = [
    {
      name: "Block",
      head: true,
      cell: (row) => (
        <button type="button" className="plain link" aria-pressed={chosen === String(row.id)} onClick={() => onPick(String(row.id))}>
          {count(row.id)}
        </button>
      ),
    },
    { name: "State", cell: (row) => <span className={`badge ${row.state}`}>{row.state}</span> },
    { name: "Planned", cell: (row) => <time dateTime={row.planned_at}>{clock(row.planned_at)}</time> },
    { name: "Took", right: true, cell: took },
    { name: "Messages", right: true, cell: (row) => count(row.messages) },
    { name: "Predicted", right: true, cell: (row) => weight(row.predicted) },
    { name: "Used", right: true, cell: (row) => (row.used ? weight(row.used) : "–") },
    { name: "Limit", right: true, cell: (row) => weight(row.limit) },
    { name: "Run", cell: (row) => <Run block={row} /> },
  ];
  return (
    <Table caption="Blocks" columns={columns} rows={rows} id={(row) => String(row.id)} mark={(row) => chosen === String(row.id)} />
  );
}

function Run({ block }: { block: BlockRow }) {
  if (!block.run) return <span className="muted">{block.key ?? "not by a DAG"}</span>;
  return (
    <a href={below(block.run.url)} title={block.run.run_id}>
      {block.run.dag_id}
    </a>
  );
}

function Chosen({ block }: { block: BlockRow | undefined }) {
  const here = useHere();
  if (!block) return <p className="muted">Choose a block to see what it took from whom.</p>;
  const columns: Column<Part>[] = [
    {
      name: "Queue",
      head: true,
      cell: (one) => (one.origin === null ? "other queues" : <a href={here.href("queue", { origin: one.origin })}>{one.origin}</a>),
    },
    { name: "Messages", right: true, cell: (one) => count(one.messages) },
    { name: "Weight", right: true, cell: (one) => weight(one.weight) },
  ];
  return (
    <section className="card" aria-label={`Block ${block.id}`}>
      <h3>
        Block {count(block.id)} <span className={`badge ${block.state}`}>{block.state}</span>
      </h3>
      <p>
        {count(block.processed)} processed, {count(block.failed)} failed, {count(block.went_back)} went back, {count(block.set_aside)} set
        aside. Predicted {weight(block.predicted)}, used {block.used ? weight(block.used) : "not known yet"}.
      </p>
      {block.run && (
        <p>
          Run <a href={below(block.run.url)}>{block.run.run_id}</a> of {block.run.dag_id}.
        </p>
      )}
      {block.tasks.length > 0 && (
        <>
          <p className="muted">Tasks, with what they (and their Spark jobs) wrote:</p>
          <ul className="tasks">
            {block.tasks.map((task) => (
              <li key={`${task.task_id} ${task.map_index}`}>
                <a href={below(task.url)}>
                  {task.task_id}
                  {task.map_index >= 0 && ` [${task.map_index}]`}
                  {task.name && ` ${task.name}`}
                </a>
                {task.state && <span className="muted"> {task.state}</span>}
              </li>
            ))}
          </ul>
        </>
      )}
      <Table caption={`What block ${block.id} took`} columns={columns} rows={block.by_queue} id={(one) => one.origin ?? ""} />
    </section>
  );
}
