/** The ring: the next queue, the waiting queues, and the last block. */

import { useState } from "react";

import { useHere, useRing } from "../context";
import { Choice } from "../parts/bars";
import { colour } from "../parts/colours";
import { Code, Empty, Loaded, Notice } from "../parts/notice";
import { Ring, type Measure } from "../parts/ring";
import { Table, type Column } from "../parts/table";
import type { Arc, Block, Overview } from "../types";
import { age, atLeast, bytes, clock, count, localised, many, weight } from "../words";

export function RingView() {
  const overview = useRing<Overview>("overview");
  return <Loaded from={overview}>{(data) => <Shown overview={data} at={overview.at} />}</Loaded>;
}

function Shown({ overview, at }: { overview: Overview; at: number | null }) {
  const here = useHere();
  const [by, setBy] = useState<Measure>("messages");
  const lead = (arc: Arc | null) => (arc ? here.href("queue", { origin: arc.origin, priority: arc.priority }) : here.href("queues"));
  return (
    <>
      {overview.overdue.map((sentence) => (
        <Notice key={sentence} kind="warn">
          {localised(sentence)}
        </Notice>
      ))}
      <Tiles overview={overview} />
      {overview.arcs.length === 0 ? (
        <NothingReady overview={overview} />
      ) : (
        <section className="split" aria-label="The ready ring">
          <div>
            <div className="row between">
              <h2>The ready ring</h2>
              <Choice label="Arc length" value={by} of={{ messages: "Messages", size: "Bytes" }} onChange={setBy} />
            </div>
            <Ring overview={overview} by={by} lead={lead} />
            <ul className="legend centre" aria-hidden="true">
              <li>▼ head: the next turn</li>
              <li>
                <i className="hatched" /> paused
              </li>
              <li>
                <i className="pulsing" /> in flight
              </li>
            </ul>
          </div>
          <div>
            <h2>Order of service</h2>
            <ArcTable overview={overview} />
          </div>
        </section>
      )}
      {overview.last_block && <LastBlock block={overview.last_block} />}
      <p className="muted fine">
        {at !== null && `As of ${new Date(at).toLocaleTimeString()}. `}
        The ring is serviced in {overview.order} order{overview.paths ? ", with fair shares along paths" : ""}; the limit of a block is{" "}
        {weight(overview.limit)}.
      </p>
    </>
  );
}

/** Upper bound of the count. */
const MOST_ASIDE = 10_000;
const asides = (number: number) => atLeast(count(number), number >= MOST_ASIDE);

function Tiles({ overview }: { overview: Overview }) {
  const here = useHere();
  const now = Date.parse(overview.now);
  const sure = (figure: string) => atLeast(figure, overview.exact === false);
  const tiles: [string, string, string, string?][] = [
    ["Waiting", sure(count(overview.waiting_messages)), sure(bytes(overview.waiting_bytes)), here.href("queues")],
    ["Ready queues", count(overview.ready), `of ${sure(count(overview.queues))}`, here.href("queues")],
    ["Oldest", overview.oldest ? age(overview.oldest, now) : "–", overview.oldest ? clock(overview.oldest) : "nothing is waiting"],
    ["In flight", count(overview.in_flight), "in planned blocks", here.href("blocks")],
    ["Set aside", asides(overview.set_aside), overview.set_aside ? "need a decision" : "nothing", here.href("set-aside")],
    ["Paused", count(overview.paused), overview.paused === 1 ? "origin" : "origins", here.href("queues", { paused: overview.paused ? "shown" : null })],
  ];
  return (
    <ul className="tiles">
      {tiles.map(([name, value, more, link]) => (
        <li key={name} className={name === "Set aside" && overview.set_aside ? "tile warn" : "tile"}>
          <span className="muted">{name}</span>
          <strong>{link ? <a href={link}>{value}</a> : value}</strong>
          <small className="muted">{more}</small>
        </li>
      ))}
    </ul>
  );
}

function ArcTable({ overview }: { overview: Overview }) {
  const here = useHere();
  const columns: Column<Arc>[] = [
    {
      name: "Queue",
      head: true,
      cell: (arc) => (
        <>
          <i className="dot" style={{ background: colour(arc.origin) }} />
          <a href={here.href("queue", { origin: arc.origin, priority: arc.priority })}>{arc.origin}</a>
          {arc.is_head && <span className="badge head">head</span>}
          {arc.priority === "high" && <span className="badge">high</span>}
          {arc.paused && <span className="badge warn">paused</span>}
        </>
      ),
    },
    { name: "Messages", right: true, cell: (arc) => atLeast(count(arc.messages), arc.more) },
    { name: "Bytes", right: true, cell: (arc) => atLeast(bytes(arc.size), arc.more) },
    { name: "In flight", right: true, cell: (arc) => count(arc.in_flight) },
  ];
  const rest = overview.rest;
  return (
    <>
      <div className="tall" tabIndex={0} role="region" aria-label="Queues in the order of the ring">
        <Table
          caption="Queues in the order of the ring, from its head"
          columns={columns}
          rows={overview.arcs}
          id={(arc) => `${arc.priority} ${arc.origin}`}
          mark={(arc) => arc.is_head}
        />
      </div>
      {rest !== null && rest.queues > 0 && (
        <p className="muted">
          And <a href={here.href("queues")}>{many(rest.queues, "more queue")}</a> with {many(rest.messages, "message")},{" "}
          {bytes(rest.size)}.
        </p>
      )}
    </>
  );
}

function LastBlock({ block }: { block: Block }) {
  const here = useHere();
  const came = (fate: string, words: string) => (block.result[fate] ? `, ${count(block.result[fate])} ${words}` : "");
  return (
    <section className="card" aria-label="The last block">
      <h2>
        <a href={here.href("blocks", { block: String(block.id) })}>Block {count(block.id)}</a>{" "}
        <span className={`badge ${block.state}`}>{block.state}</span>
      </h2>
      <p>
        {many(block.messages, "message")} of {many(block.by_queue.length, "queue")}: {count(block.result.processed ?? 0)} processed
        {came("failed", "failed")}
        {came("returned", "returned")}
        {came("set_aside", "set aside")}. {weight(block.used ?? block.predicted)} of{" "}
        {weight(block.limit)}.
      </p>
    </section>
  );
}

function NothingReady({ overview }: { overview: Overview }) {
  const here = useHere();
  if (overview.queues === 0)
    return (
      <Empty title="This ring is empty">
        <p>No message is stored in it. Any program with access to the store can send one:</p>
        <Code>{`airflow-mq enqueue acme/orders '{"order": 1}' --conn-id ${here.conn} --ring ${here.ring}`}</Code>
        <p>or, in a task:</p>
        <Code>{`from airflow_mq.hooks import MessageQueueHook

with MessageQueueHook("${here.conn}").queue("${here.ring}") as queue:
    queue.enqueue_message("acme/orders", b'{"order": 1}')`}</Code>
      </Empty>
    );
  return (
    <Empty title="Nothing is ready">
      <p>
        Every message is processed, in flight or set aside. {many(overview.queues, "queue")} will join the ring
        again with {overview.queues === 1 ? "its" : "their"} next message.
      </p>
      {overview.set_aside > 0 && (
        <p>
          <a href={here.href("set-aside")}>{many(overview.set_aside, "message")}</a> set aside {overview.set_aside === 1 ? "needs" : "need"} a
          decision.
        </p>
      )}
    </Empty>
  );
}
