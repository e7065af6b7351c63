/** Set-aside messages, and the decisions about them: execute, requeue, discard. */

import { useRef, useState } from "react";

import { below } from "../api";
import { useHere, useRing, type Here } from "../context";
import { Dialog, Field } from "../parts/dialog";
import { Listing } from "../parts/listing";
import { Action, Empty, Loaded, Notice } from "../parts/notice";
import { Table, type Column } from "../parts/table";
import { useWord } from "../route";
import type { Decided, Executing, SetAsideMessage } from "../types";
import type { Paged } from "../api";
import { bytes, count, many, span, weight, where } from "../words";

/** Reasons for setting aside, by stored name. */
const REASONS: Record<string, string> = {
  overweight: "heavier than a whole block",
  most: "heavier than its queue’s part of a block",
  fraction: "heavier than one message may be",
  size: "larger than the ring allows",
  attempts: "out of attempts",
  swept: "swept out of its queue",
};

/** All that the list shows, with what selects them; the total, if it is known. */
type All = { total: number | null; filters: { reason: string } | { all: true } };

/** A decision about some messages, about all, or about all with the error of the first one. */
type Decision = { what: "execute" | "requeue" | "requeue by error" | "discard"; rows: SetAsideMessage[]; all?: All };

/** Focus target when the focused row is gone. */
const HEADING = "amq-set-aside";

export function SetAsideView() {
  const here = useHere();
  const [reason, setReason] = useWord("reason");
  return (
    <>
      <div className="row between">
        <h2 id={HEADING} tabIndex={-1}>
          Set-aside messages
        </h2>
        <div className="row">
          <select aria-label="Reason" value={reason} onChange={(event) => setReason(event.target.value)}>
            <option value="">all reasons</option>
            {Object.entries(REASONS).map(([name, words]) => (
              <option key={name} value={name}>
                {words}
              </option>
            ))}
          </select>
          <a className="button" href={here.url("export/set-aside.csv", { reason })} download>
            CSV
          </a>
        </div>
      </div>
      <Listing<SetAsideMessage> what="set-aside" label="set-aside messages" query={{ reason }} limit={50} empty={<None reason={reason} />}>
        {(data, refresh) => <Choosing rows={data.rows} rest={data.total === data.rows.length ? null : { total: data.total ?? null, filters: reason ? { reason } : { all: true } }} onDone={refresh} />}
      </Listing>
    </>
  );
}

function None({ reason }: { reason: string }) {
  return reason ? (
    <Empty title="No message is set aside for this reason" />
  ) : (
    <Empty title="Nothing is set aside">
      <p>
        A message that is heavier than a whole block is set aside instead of blocking its queue. Nothing is lost: a person executes
        it with its own limit, requeues it after raising the limit, or discards it with a reason.
      </p>
    </Empty>
  );
}

type Choosable = { rows: SetAsideMessage[]; /** If the list has more pages. */ rest: All | null; onDone: () => void };

function Choosing({ rows, rest, onDone }: Choosable) {
  const here = useHere();
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [decision, setDecision] = useState<Decision | null>(null);
  const moved = useRef(false);
  const picked = rows.filter((row) => chosen.has(row.address));
  const write = here.refusal("write");
  const none = picked.length === 0 ? "Choose messages first." : null;
  const toggle = (id: string) => setChosen((old) => (old.has(id) ? new Set([...old].filter((one) => one !== id)) : new Set([...old, id])));
  const all = picked.length === rows.length;
  return (
    <>
      <div className="row bar" role="group" aria-label="With the chosen messages">
        <label className="row">
          <input type="checkbox" checked={all} onChange={() => setChosen(all ? new Set() : new Set(rows.map((row) => row.address)))} />
          All on this page
        </label>
        <span className="muted" role="status">
          {count(picked.length)} chosen
        </span>
        <Action refusal={write ?? none ?? stays(picked)} onClick={() => setDecision({ what: "requeue", rows: picked })}>
          Requeue
        </Action>
        <Action danger refusal={write ?? none} onClick={() => setDecision({ what: "discard", rows: picked })}>
          Discard
        </Action>
        {rest && (
          <Action refusal={write} onClick={() => setDecision({ what: "requeue", rows: [], all: rest })}>
            {`Requeue ${everything(rest)}`}
          </Action>
        )}
      </div>
      <MessageTable rows={rows} chosen={chosen} onToggle={toggle} onDecide={setDecision} />
      {decision && (
        <DecisionDialog
          decision={decision}
          onClose={() => {
            setDecision(null);
            if (moved.current) document.getElementById(HEADING)?.focus();
            moved.current = false;
          }}
          onDone={() => {
            moved.current = decision.what !== "execute";
            setChosen(new Set());
            onDone();
          }}
        />
      )}
    </>
  );
}

function MessageTable(props: {
  rows: SetAsideMessage[];
  chosen: ReadonlySet<string>;
  onToggle: (id: string) => void;
  onDecide: (decision: Decision) => void;
}) {
  const here = useHere();
  const write = here.refusal("write");
  const dag = here.me.execute_dag;
  const missing = `The DAG ${dag.dag_id} is not in this Airflow: add it to the DAGs folder, or name another one in [airflow_mq] overweight_dag.`;
  const execute = write ?? (dag.exists ? here.refusal("trigger") : missing);
  const columns: Column<SetAsideMessage>[] = [
    {
      name: "Message",
      head: true,
      cell: (row) => (
        <label className="row tight">
          <input
            type="checkbox"
            aria-label={`Choose ${where(row.address)}`}
            checked={props.chosen.has(row.address)}
            onChange={() => props.onToggle(row.address)}
          />
          <span>{where(row.address)}</span>
        </label>
      ),
    },
    { name: "Weight", right: true, cell: (row) => (row.weight ? weight(row.weight) : "–") },
    { name: "Limit", right: true, cell: (row) => (row.limit === null && row.most_bytes !== null ? bytes(row.most_bytes) : weight(row.limit)) },
    { name: "Size", right: true, cell: (row) => bytes(row.size) },
    { name: "Fits now", cell: (row) => (row.stays ? "no" : "yes") },
    {
      name: "Reason",
      wide: true,
      cell: (row) => (
        <>
          <span className="why">{REASONS[row.reason] ?? row.reason}</span>
          {row.error && (
            <span className="row">
              <code>{row.error}</code>
              <Action refusal={write} label={`Requeue all with this error…: ${row.error}`} onClick={() => props.onDecide({ what: "requeue by error", rows: [row] })}>
                Requeue all with this error…
              </Action>
            </span>
          )}
        </>
      ),
    },
    {
      name: "Since",
      right: true,
      cell: (row) => (
        <>
          {row.age === null ? "–" : span(row.age)}
          {row.block !== null && (
            <>
              {" · "}
              <a href={here.href("blocks", { block: String(row.block) })}>block {row.block}</a>
            </>
          )}
        </>
      ),
    },
    {
      name: "Decide",
      wide: true,
      cell: (row) => (
        <span className="row tight">
          <Action primary refusal={execute} label={`Execute ${where(row.address)}`} onClick={() => props.onDecide({ what: "execute", rows: [row] })}>
            Execute
          </Action>
          <Action refusal={write ?? stays([row])} label={`Requeue ${where(row.address)}`} onClick={() => props.onDecide({ what: "requeue", rows: [row] })}>
            Requeue
          </Action>
          <Action danger refusal={write} label={`Discard ${where(row.address)}`} onClick={() => props.onDecide({ what: "discard", rows: [row] })}>
            Discard
          </Action>
        </span>
      ),
    },
  ];
  return (
    <>
      {execute && <p className="muted fine">{write ? write : `Execute is off. ${execute}`}</p>}
      <Table caption="Set-aside messages" columns={columns} rows={props.rows} id={(row) => row.address} mark={(row) => props.chosen.has(row.address)} />
    </>
  );
}

function DecisionDialog({ decision, onDone, onClose }: { decision: Decision; onDone: () => void; onClose: () => void }) {
  const what = { decision, onDone, onClose };
  if (decision.what === "execute") return <Execute {...what} />;
  if (decision.what === "requeue by error") return <RequeueByError {...what} />;
  return decision.what === "requeue" ? <Requeue {...what} /> : <Discard {...what} />;
}

type DialogProps = { decision: Decision; onDone: () => void; onClose: () => void };

function Execute({ decision, onDone, onClose }: DialogProps) {
  const here = useHere();
  const [note, setNote] = useState("");
  const dag = here.me.execute_dag;
  const row = decision.rows[0]!;
  async function execute() {
    const run = await here.post<Executing>("set-aside/execute", {
      address: row.address,
      ...(note.trim() && { note: note.trim() }),
    });
    const waits = run.paused ? " That DAG is paused: unpause it to start the run." : "";
    here.announce(`${where(row.address)} is executed by ${run.dag_id}.${waits}`, { href: below(run.url), text: "See the run" });
    onDone();
  }
  return (
    <Dialog title="Execute by hand" confirm="Execute" onConfirm={execute} onClose={onClose}>
      <p>
        Triggers the DAG <code>{dag.dag_id}</code> for this message in your name, with its form filled in: <strong>{where(row.address)}</strong>
        {row.weight && `, with a limit of ${weight(row.weight)}`}.
      </p>
      {dag.paused && <Notice kind="warn">This DAG is paused: the run waits until you unpause it.</Notice>}
      <Field label="Note" value={note} onChange={setNote} hint="Stored with the run. Optional." />
    </Dialog>
  );
}

function Chosen({ rows }: { rows: SetAsideMessage[] }) {
  return (
    <ul className="chosen-list">
      {rows.slice(0, 5).map((row) => (
        <li key={row.address}>{where(row.address)}</li>
      ))}
      {rows.length > 5 && <li>and {count(rows.length - 5)} more</li>}
    </ul>
  );
}

function announceDecided(here: Here, answer: Decided, what: string) {
  // Another person may have decided meanwhile: such a message is not set aside any more.
  const refused = answer.refused[0];
  const texts = [`${many(answer.done, "message")} ${what}.`];
  if (refused) texts.push(`${many(answer.stayed, "was", "were")} not: ${refused.why}${answer.excluded.length ? "." : ""}`);
  here.announce([...texts, ...answer.excluded].join(" "), undefined, answer.done ? "good" : "warn");
}

/** The reason why none of these messages can be requeued now, or null. */
const stays = (rows: SetAsideMessage[]) =>
  rows.some((row) => !row.stays) ? null : `${rows.length === 1 ? "It does not fit now" : "None of them fits now"}: ${rows[0]?.stays}.`;

const everything = ({ total }: All, one = "") => `all${total === null ? "" : ` ${one ? many(total, one) : count(total)}`}`;

function Requeue({ decision, onDone, onClose }: DialogProps) {
  const here = useHere();
  const [why, setWhy] = useState("");
  async function requeue() {
    const answer = await here.post<Decided>("set-aside/requeue", {
      ...(decision.all?.filters ?? { addresses: decision.rows.map((row) => row.address) }),
      why: why.trim(),
    });
    announceDecided(here, answer, "requeued");
    onDone();
  }
  return (
    <Dialog title={`Requeue ${decision.all ? everything(decision.all, "message") : many(decision.rows.length, "message")}`} confirm="Requeue" onConfirm={requeue} onClose={onClose}>
      <Chosen rows={decision.rows} />
      <p>Messages that fit into a block now return to their queues. Messages that are still too heavy stay set aside.</p>
      <Field label="Reason" value={why} onChange={setWhy} required hint="Stored in the event, with your name." />
    </Dialog>
  );
}

function RequeueByError({ decision, onDone, onClose }: DialogProps) {
  const here = useHere();
  const [why, setWhy] = useState("");
  const error = decision.rows[0]!.error!;
  const affected = useRing<Paged<SetAsideMessage>>("set-aside", { error, limit: 1 }, false);
  const total = affected.data && (affected.data.total ?? Infinity);
  const messages = total === null ? "messages" : total === Infinity ? "all messages" : many(total, "message");
  async function requeue() {
    const answer = await here.post<Decided>("set-aside/requeue", { error, why: why.trim() });
    announceDecided(here, answer, "requeued");
    onDone();
  }
  return (
    <Dialog title="Requeue all with this error" confirm={`Requeue ${messages}`} barred={!total} onConfirm={requeue} onClose={onClose}>
      <p>
        Error: <code>{error}</code>
      </p>
      <Loaded from={affected}>
        {() =>
          total === 0 ? (
            <p>No message is set aside with this error now.</p>
          ) : (
            <p>
              {total === 1 ? "1 message is" : `${total === Infinity ? "More messages than are counted" : messages} are`} set aside with this error, or
              with one that begins with the same text. Each returns to the end of its queue, and its attempts count from zero.
            </p>
          )
        }
      </Loaded>
      <Field label="Reason" value={why} onChange={setWhy} required hint="Stored in the event, with your name." />
    </Dialog>
  );
}

function Discard({ decision, onDone, onClose }: DialogProps) {
  const here = useHere();
  const [why, setWhy] = useState("");
  async function discard() {
    const answer = await here.post<Decided>("set-aside/discard", {
      addresses: decision.rows.map((row) => row.address),
      why: why.trim(),
    });
    announceDecided(here, answer, "discarded");
    onDone();
  }
  return (
    <Dialog title={`Discard ${many(decision.rows.length, "message")}`} confirm="Discard permanently" danger onConfirm={discard} onClose={onClose}>
      <Chosen rows={decision.rows} />
      <p>Discarded messages are deleted permanently.</p>
      <Field label="Reason" value={why} onChange={setWhy} required hint="Stored in the event, with your name." />
    </Dialog>
  );
}
