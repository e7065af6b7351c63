/** What was charged to origins, paths, processors or DAGs, by day or month. */

import { useHere, type Query } from "../context";
import { Choice } from "../parts/bars";
import { Filters } from "../parts/filters";
import { Sliced } from "../parts/listing";
import { Named } from "../parts/named";
import { Empty, Loaded } from "../parts/notice";
import { Table, type Column } from "../parts/table";
import { usePoll, useSettled } from "../poll";
import { useWord } from "../route";
import type { Usage, UsageRow } from "../types";
import { bytes, count, many, ofTime, weight } from "../words";

const BY = { origin: "Origin", path: "Path", processor: "Processor", dag: "DAG" };
const PER = { day: "Day", month: "Month" };
/** Rows that the page shows, and rows of a file. */
const SHOWN = 1_000;
const MOST = 100_000;
/** The first day, if none is chosen. */
const EVER = "1970-01-01";
/** Seconds between two readings: they add up all charges of the time. */
const SECONDS = 60;

type By = keyof typeof BY;
type Per = keyof typeof PER;

export function UsageView() {
  const here = useHere();
  const [by, setBy] = useWord("by", "origin") as [By, (value: string) => void];
  const [per, setPer] = useWord("per", "day") as [Per, (value: string) => void];
  // The server's days are those of UTC.
  const [since, setSince] = useWord("since", `${new Date().toISOString().slice(0, 7)}-01`);
  const [until, setUntil] = useWord("until");
  const [typed, setTyped] = useWord("of");
  const query = { by, per, since: useSettled(since), until: useSettled(until), of: useSettled(typed) };
  return (
    <>
      <div className="row between">
        <h2>Usage</h2>
        <Filters title="Choose and export" active={typed !== ""}>
          <select aria-label="Sum by" value={by} onChange={(event) => setBy(event.target.value)}>
            {Object.entries(BY).map(([name, title]) => (
              <option key={name} value={name}>
                by {name === "dag" ? title : name}
              </option>
            ))}
          </select>
          <Choice<Per> label="Period" value={per} of={PER} onChange={setPer} />
          <label className="row tight">
            <span className="muted">From</span>
            <input type="date" value={since === EVER ? "" : since} onChange={(event) => setSince(event.target.value || EVER)} />
          </label>
          <label className="row tight">
            <span className="muted">Before</span>
            <input type="date" value={until} onChange={(event) => setUntil(event.target.value)} />
          </label>
          <input
            type="search"
            aria-label="Only this origin and all below it"
            placeholder="Origin or path"
            value={typed}
            onChange={(event) => setTyped(event.target.value)}
          />
          <a className="button" href={here.url("export/usage.csv", query)} download>
            CSV
          </a>
          <a className="button" href={here.url("usage", { ...query, limit: MOST })} download="airflow-mq-usage.json">
            JSON
          </a>
        </Filters>
      </div>
      <Found query={query} by={by} />
    </>
  );
}

function Found({ query, by }: { query: Query; by: By }) {
  const here = useHere();
  const key = JSON.stringify([here.conn, here.ring, "usage", query]);
  const from = usePoll<Usage>(key, (signal) => here.get<Usage>("usage", { ...query, limit: SHOWN }, signal), SECONDS);
  return (
    <Loaded from={from}>
      {(data) => (
        <Sliced rows={data.rows} label="usage" by={25} empty={<Nothing />}>
          {({ rows }) => (
            <>
              <p>
                <strong>{weight(data.charged)}</strong> charged for {many(data.messages, "message")}.
              </p>
              <Rows rows={rows} by={by} />
              <dl className="terms muted fine">
                <dt>Planned</dt>
                <dd>the weight that blocks took for the messages</dd>
                <dt>Charged</dt>
                <dd>for each attempt that counts, the predicted or the reported weight, whichever is larger</dd>
                <dt>Measured</dt>
                <dd>the time of the processors' calls</dd>
                <dt>Days</dt>
                <dd>those of UTC</dd>
              </dl>
              {data.total > data.rows.length && (
                <p className="muted">
                  The first {count(data.rows.length)} of {count(data.total)} rows. The files have more.
                </p>
              )}
            </>
          )}
        </Sliced>
      )}
    </Loaded>
  );
}

function Rows({ rows, by }: { rows: UsageRow[]; by: By }) {
  const columns: Column<UsageRow>[] = [
    { name: BY[by], head: true, cell: (row) => (by === "origin" ? <Named origin={row.name} /> : row.name || "none") },
    { name: "Period", cell: (row) => row.period },
    { name: "Messages", right: true, cell: (row) => count(row.messages) },
    { name: "Bytes", right: true, cell: (row) => bytes(row.size) },
    { name: "Attempts", right: true, cell: (row) => count(row.attempts) },
    { name: "Set aside", right: true, cell: (row) => count(row.set_aside) },
    { name: "Planned", right: true, cell: (row) => weight(row.planned) },
    { name: "Charged", right: true, cell: (row) => weight(row.charged) },
    { name: "Measured", right: true, cell: (row) => (row.measured ? ofTime(Math.round(row.measured * 1_000)) : "0") },
  ];
  return <Table caption="Usage" columns={columns} rows={rows} id={(row) => `${row.period} ${row.name}`} />;
}

const Nothing = () => (
  <Empty title="Nothing was charged in this time">
    <p>A message is charged when a processor has tried it. Choose an earlier day, or another origin.</p>
  </Empty>
);
