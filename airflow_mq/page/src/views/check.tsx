/** Integrity check and fairness of a ring. */

import { useState } from "react";

import { useHere, useRing } from "../context";
import { Sliced } from "../parts/listing";
import { Action, Empty, Failure, Loaded, Notice } from "../parts/notice";
import { Table, type Column } from "../parts/table";
import type { Checked, Fairness, OriginFairness } from "../types";
import { count, many, off } from "../words";
import { Share } from "./queues";

export function CheckView() {
  return (
    <>
      <Integrity />
      <FairnessTable />
      <Exports />
    </>
  );
}

function Integrity() {
  const here = useHere();
  const [busy, setBusy] = useState(false);
  const [found, setFound] = useState<Checked | Error | null>(null);
  async function check() {
    setBusy(true);
    setFound(null);
    try {
      setFound(await here.post<Checked>("check"));
    } catch (error) {
      setFound(error as Error);
    }
    setBusy(false);
  }
  return (
    <section aria-label="Integrity">
      <h2>Integrity</h2>
      <p>Reads all stored data of this ring and checks every invariant. On a large store, this takes minutes.</p>
      <Action primary refusal={here.refusal("write")} busy={busy} onClick={() => void check()}>
        {busy ? "Checking…" : "Check now"}
      </Action>
      {found && <Found found={found} />}
    </section>
  );
}

function Found({ found }: { found: Checked | Error }) {
  if (found instanceof Error) return <Failure error={found} />;
  if (found.violations.length === 0) return <Notice kind="good">No violations found in {found.took_seconds.toFixed(1)} s.</Notice>;
  return (
    <>
      <Notice kind="bad">
        <strong>{many(found.count, "violation")} found.</strong> Copy the store before you do anything else.
        <p className="sentence">Read the disaster recovery guide and the output of `airflow-mq check`.</p>
      </Notice>
      <Sliced rows={found.violations} label="violations">
        {({ rows }) => (
          <ul>
            {rows.map((one, index) => (
              <li key={index}>
                <strong>{one.where}</strong>: {one.what}
              </li>
            ))}
          </ul>
        )}
      </Sliced>
      {found.count > found.violations.length && (
        <p>
          These are the first {count(found.violations.length)}; <code>airflow-mq check</code> lists all.
        </p>
      )}
    </>
  );
}

function FairnessTable() {
  const fairness = useRing<Fairness>("fairness");
  const columns: Column<OriginFairness>[] = [
    { name: "Queue", head: true, cell: (row) => <QueueLink row={row} /> },
    { name: "Received / promised", right: true, cell: (row) => <Share row={row} /> },
    { name: "Deviation", right: true, cell: (row) => off(row.error) },
    { name: "Longest wait", right: true, cell: (row) => many(row.longest_wait, "block") },
  ];
  return (
    <section aria-label="Fairness">
      <h2>Fairness</h2>
      <Loaded from={fairness}>
        {(data) => (
          <Sliced rows={data.rows} label="shares" by={25} empty={<NothingYet />}>
            {({ rows }) => (
              <>
              <p>
                Over {many(data.blocks, "block")}
                {data.jain !== null && (
                  <>
                    , Jain’s index is <strong>{data.jain.toFixed(3)}</strong> (1: every queue received its promised share)
                  </>
                )}
                .
              </p>
              <Table caption="Shares promised and received" columns={columns} rows={rows} id={(row) => `${row.priority} ${row.origin}`} />
              {data.queues > data.rows.length && (
                <p className="muted">
                  The {count(data.rows.length)} queues with the largest deviation, of {count(data.queues)}.
                </p>
              )}
              {data.partial && (
                <p className="muted">More queues wait than were compared: the promised shares are upper bounds.</p>
              )}
              </>
            )}
          </Sliced>
        )}
      </Loaded>
    </section>
  );
}

const NothingYet = () => (
  <Empty title="Nothing to compare yet">
    <p>After the first settled block, this table shows each queue's promised and received share.</p>
  </Empty>
);

function QueueLink({ row }: { row: OriginFairness }) {
  const here = useHere();
  return (
    <>
      <a href={here.href("queue", { origin: row.origin, priority: row.priority })}>{row.origin}</a>
      {row.priority === "high" && <span className="badge">high</span>}
    </>
  );
}

function Exports() {
  const here = useHere();
  return (
    <section aria-label="Exports">
      <h2>Exports</h2>
      <p>CSV files that are safe to open in a spreadsheet.</p>
      <p className="row">
        {["queues", "set-aside", "events"].map((name) => (
          <a key={name} className="button" href={here.url(`export/${name}.csv`)} download>
            {name}.csv
          </a>
        ))}
      </p>
    </section>
  );
}
