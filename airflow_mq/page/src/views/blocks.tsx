/** The latest blocks: each queue's part of the limit, and the run. */

import { useState } from "react";

import { below } from "../api";
import { useHere, useRing } from "../context";
import { Bars, Choice, Legend, type Bar, type Dimension } from "../parts/bars";
import { Listing } from "../parts/listing";
import { Named } from "../parts/named";
import { Empty, Loaded, Notice } from "../parts/notice";
import { Table, type Column } from "../parts/table";
import { useWord } from "../route";
import type { Block, BlockShare, Task } from "../types";
import type { Paged } from "../api";
import { age, clock, count, span, weight } from "../words";

export const DIMENSIONS: Record<Dimension, string> = { time: "Time", size: "Size" };

export function BlocksView() {
  const [by, setBy] = useState<Dimension>("time");
  const [chosen, setChosen] = useWord("block");
  return (
    <>
      <div className="row between">
        <h2>Blocks over time</h2>
        <Choice label="Part of the weight" value={by} of={DIMENSIONS} onChange={setBy} />
      </div>
      <Listing<Block> what="blocks" label="blocks" limit={25} cursor="before" empty={<NoBlocks />}>
        {(data) => (
          <>
            <Bars
              label="Weight of blocks by queue, against their limit; the latest to the right"
              bars={[...data.rows].reverse().map(bar)}
              by={by}
              chosen={chosen}
              onPick={setChosen}
            />
            <Legend origins={origins(data.rows)} />
            <Chosen id={chosen} rows={data.rows} />
            <BlockTable rows={data.rows} chosen={chosen} onPick={setChosen} />
          </>
        )}
      </Listing>
    </>
  );
}

/** Colours of states by their meaning. */
const STATES: Record<string, string> = { planned: "busy", settled: "good", released: "warn" };
const TASK_STATES: Record<string, string> = { running: "busy", success: "good", failed: "bad", upstream_failed: "bad" };

const bar = (row: Block): Bar => ({ ...row, id: String(row.id), name: String(row.id) });

/** Origins in a picture, heaviest first, the rest last. */
export function origins(rows: { by_queue: BlockShare[] }[], most = 12): (string | null)[] {
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
        A block is what one run services: as many messages as fit its limit, taken fairly from all queues. A DAG with{" "}
        <code>block()</code> plans one in each of its runs: unpause that DAG, or add one to your DAGs folder. What the first block would
        take is under <a href={here.href("next")}>Next blocks</a>.
      </p>
    </Empty>
  );
}

const took = (row: Block) =>
  row.ended_at ? span((Date.parse(row.ended_at) - Date.parse(row.planned_at)) / 1000) : `since ${age(row.planned_at)}`;

function BlockTable({ rows, chosen, onPick }: { rows: Block[]; chosen: string | null; onPick: (id: string) => void }) {
  const columns: Column<Block>[] = [
    {
      name: "Block",
      head: true,
      cell: (row) => (
        <button type="button" className="plain link" aria-pressed={chosen === String(row.id)} onClick={() => onPick(String(row.id))}>
          {count(row.id)}
        </button>
      ),
    },
    { name: "State", cell: (row) => <span className={`badge ${STATES[row.state] ?? ""}`}>{row.state}</span> },
    { name: "Planned", cell: (row) => <time dateTime={row.planned_at}>{clock(row.planned_at)}</time> },
    { name: "Duration", right: true, cell: took },
    { name: "Messages", right: true, cell: (row) => count(row.messages) },
    { name: "Predicted", right: true, cell: (row) => weight(row.predicted) },
    { name: "Used", right: true, cell: (row) => (row.used ? weight(row.used) : "–") },
    { name: "Limit", right: true, cell: (row) => weight(row.limit) },
    { name: "Run", wide: true, cell: (row) => <Run block={row} /> },
  ];
  return (
    <Table caption="Blocks" columns={columns} rows={rows} id={(row) => String(row.id)} mark={(row) => chosen === String(row.id)} />
  );
}

function Run({ block }: { block: Block }) {
  if (!block.run) return <span className="muted">{block.key ?? "no DAG run"}</span>;
  return (
    <a href={below(block.run.url)} title={block.run.run_id}>
      {block.run.dag_id}
    </a>
  );
}

function Chosen({ id, rows }: { id: string; rows: Block[] }) {
  if (!/^\d{1,15}$/.test(id)) return <p className="muted">Choose a block to see each queue's share of it, and the logs of its tasks.</p>;
  const block = rows.find((row) => String(row.id) === id);
  return block ? <BlockCard block={block} /> : <Elsewhere id={id} />;
}

/** A block that is on another page of the list. */
function Elsewhere({ id }: { id: string }) {
  const found = useRing<Paged<Block>>("blocks", { before: Number(id) + 1, limit: 1 });
  return (
    <Loaded from={found}>
      {({ rows: [block] }) => (block && String(block.id) === id ? <BlockCard block={block} /> : <p className="muted">Block {id} is no longer stored.</p>)}
    </Loaded>
  );
}

function BlockCard({ block }: { block: Block }) {
  const columns: Column<BlockShare>[] = [
    { name: "Queue", head: true, cell: (one) => <Named origin={one.origin} priority={one.priority} /> },
    { name: "Messages", right: true, cell: (one) => count(one.messages) },
    { name: "Weight", right: true, cell: (one) => weight(one.weight) },
  ];
  return (
    <section className="card" aria-label={`Block ${block.id}`}>
      <h3>
        Block {count(block.id)} <span className={`badge ${STATES[block.state] ?? ""}`}>{block.state}</span>
      </h3>
      <p>
        {count(block.result.processed ?? 0)} processed, {count(block.result.failed ?? 0)} failed, {count(block.result.returned ?? 0)} returned,{" "}
        {count(block.result.set_aside ?? 0)} set aside. Predicted {weight(block.predicted)}, used {block.used ? weight(block.used) : "not known yet"}.
      </p>
      {block.state === "planned" && block.deadline && <Held until={block.deadline} />}
      {block.run && (
        <p>
          Run <a href={below(block.run.url)}>{block.run.run_id}</a> of {block.run.dag_id}.
        </p>
      )}
      {block.tasks.length > 0 && <TaskTable block={block} />}
      <Table caption={`Queues of block ${block.id}`} columns={columns} rows={block.by_queue} id={(one) => `${one.priority} ${one.origin}`} />
    </section>
  );
}

/** Deadline of a planned block. */
function Held({ until }: { until: string }) {
  return Date.parse(until) > Date.now() ? (
    <p>
      The block holds its messages until it is settled, or until <time dateTime={until}>{clock(until)}</time>. Then the next block returns them to their queues.
    </p>
  ) : (
    <Notice kind="warn">
      The block was not settled in time: its lease expired {age(until)} ago. The next planned block returns its messages to their
      queues. Unpause or trigger the DAG that plans blocks.
    </Notice>
  );
}

const named = (task: Task) => (task.map_index < 0 ? task.task_id : `${task.task_id} [${task.map_index}]`);

/** Tasks with their logs and Spark applications. */
function TaskTable({ block }: { block: Block }) {
  const onSpark = block.tasks.some((task) => task.job);
  const columns: Column<Task>[] = [
    {
      name: "Task",
      head: true,
      cell: (task) => (
        <>
          <a href={below(task.url)}>{named(task)}</a>
          {task.name !== task.task_id && <span className="muted"> {task.name}</span>}
        </>
      ),
    },
    { name: "State", cell: (task) => <span className={`badge ${TASK_STATES[task.state ?? ""] ?? ""}`}>{task.state ?? "waiting"}</span> },
    { name: "Duration", right: true, cell: (task) => (task.seconds === null ? "–" : span(task.seconds)) },
    { name: "Logs", cell: (task) => <Logs task={task} /> },
    ...(onSpark ? [{ name: "Spark job", cell: (task: Task) => <SparkJob task={task} /> }] : []),
  ];
  return <Table caption={`Tasks of block ${block.id}`} columns={columns} rows={block.tasks} id={(task) => `${task.task_id} ${task.map_index}`} />;
}

const MOST_TRIES = 5;

function Logs({ task }: { task: Task }) {
  if (task.tries === 0) return <span className="muted">not started</span>;
  const first = Math.max(1, task.tries - MOST_TRIES + 1);
  const tries = Array.from({ length: task.tries - first + 1 }, (_, index) => first + index);
  return (
    <span className="logs">
      {tries.map((one) => (
        <a key={one} href={`${below(task.url)}?try_number=${one}`} aria-label={`Log of ${named(task)}, try ${one}`}>
          {task.tries === 1 ? "log" : `try ${one}`}
        </a>
      ))}
    </span>
  );
}

/** Spark application of the latest try. */
function SparkJob({ task }: { task: Task }) {
  if (!task.job) return <span className="muted">–</span>;
  const { id, url } = task.job;
  if (!url) return <code>{id}</code>;
  return (
    <a href={url} target="_blank" rel="noopener noreferrer" title="Application in Spark's UI">
      {id ?? "Spark UI"}
    </a>
  );
}
