/** Is all that is stored sound, and is it shared as promised? */

import { useState } from "react";

import { useHere, useRing } from "../context";
import { Action, Empty, Failure, Loaded, Notice } from "../parts/notice";
import { Table, type Column } from "../parts/table";
import type { Checked, Fairness, FairnessRow } from "../types";
import { count, many, percent, span } from "../words";
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
      <p>Reads all that is stored of this ring and checks that every rule of the queue holds. On a large store it takes a while.</p>
      <Action primary refusal={here.refusal("write")} busy={busy} onClick={() => void check()}>
        {busy ? "Checking…" : "Check now"}
      </Action>
      <div role="status">{found && <Found found={found} />}</div>
    </section>
  );
}

function Found({ found }: { found: Checked | Error }) {
  if (found instanceof Error) return <Failure error={found} />;
  if (found.violations.length === 0) return <Notice kind="good">All is sound. That took {found.took_seconds.toFixed(1)} s.</Notice>;
  return (
    <Notice kind="bad">
      <strong>{many(found.violations.length, "rule is", "rules are")} broken.</strong> Keep a copy of the store before anything else.
      <ul>
        {found.violations.map((one, index) => (
          <li key={index}>
            <strong>{one.where}</strong>: {one.what} {one.hint}
          </li>
        ))}
      </ul>
    </Notice>
  );
}

function FairnessTable() {
  const here = useHere();
  const fairness = useRing<Fairness>("fairness");
  const columns: Column<FairnessRow>[] = [
    { name: "Queue", head: true, cell: (row) => <a href={here.href("queue", { origin: row.origin })}>{row.origin}</a> },
    { name: "Received / promised", right: true, cell: (row) => <Share row={row} /> },
    { name: "Off by", right: true, cell: (row) => percent(row.error) },
    { name: "Longest wait", right: true, cell: (row) => (row.longest_wait === null ? "–" : span(row.longest_wait)) },
  ];
  return (
    <section aria-label="Fairness">
      <h2>Fairness</h2>
      <Loaded from={fairness}>
        {(data) =>
          data.rows.length === 0 ? (
            <Empty title="Nothing to compare yet">
              <p>Once blocks were settled, this says what every queue was promised and what it received.</p>
            </Empty>
          ) : (
            <>
              <p>
                Over {many(data.blocks, "block")}
                {data.jain !== null && (
                  <>
                    , Jain’s index is <strong>{data.jain.toFixed(3)}</strong> (1 is what was promised, to all)
                  </>
                )}
                .
              </p>
              <Table caption="Shares promised and received" columns={columns} rows={data.rows} id={(row) => row.origin} />
              <p className="muted">{count(data.rows.length)} queues.</p>
            </>
          )
        }
      </Loaded>
    </section>
  );
}

function Exports() {
  const here = useHere();
  return (
    <section aria-label="Exports">
      <h2>Exports</h2>
      <p>As CSV, safe to open in a spreadsheet.</p>
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
