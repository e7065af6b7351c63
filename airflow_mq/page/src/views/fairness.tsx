/** The promised and the received share of each queue in the latest blocks. */

import { useRing } from "../context";
import { Sliced } from "../parts/listing";
import { Named } from "../parts/named";
import { Empty, Loaded } from "../parts/notice";
import { Table, type Column } from "../parts/table";
import type { Fairness, OriginFairness } from "../types";
import { count, many, off, percent } from "../words";

export function FairnessView() {
  const fairness = useRing<Fairness>("fairness");
  const columns: Column<OriginFairness>[] = [
    { name: "Queue", head: true, cell: (row) => <Named origin={row.origin} priority={row.priority} /> },
    { name: "Received / promised", right: true, cell: (row) => <Share row={row} /> },
    { name: "Deviation", right: true, cell: (row) => off(row.error) },
    { name: "Longest wait", right: true, cell: (row) => many(row.longest_wait, "block") },
  ];
  return (
    <>
      <h2>Fairness</h2>
      <Loaded from={fairness}>
        {(data) => (
          <Sliced rows={data.rows} label="shares" by={25} empty={<NothingYet />}>
            {({ rows }) => (
              <>
                <p>
                  Over the latest {many(data.blocks, "block")}
                  {data.jain !== null && (
                    <>
                      , Jain’s index is <strong>{data.jain.toFixed(3)}</strong> (1: every queue received its promised share)
                    </>
                  )}
                  .
                </p>
                <Table caption="Shares promised and received" columns={columns} rows={rows} id={(row) => `${row.priority} ${row.origin}`} />
                <dl className="terms muted fine">
                  <dt>Promised</dt>
                  <dd>the queue's fair part of the blocks in which it wanted more than it got</dd>
                  <dt>Received</dt>
                  <dd>the part of these blocks that its messages used</dd>
                  <dt>Deviation</dt>
                  <dd>received compared with promised: −20 % means a fifth less. Over a few blocks, a large deviation is chance</dd>
                  <dt>Longest wait</dt>
                  <dd>the most blocks in a row that took none of its waiting messages</dd>
                </dl>
                {data.queues > data.rows.length && (
                  <p className="muted">
                    The {count(data.rows.length)} queues with the largest deviation, of {count(data.queues)}.
                  </p>
                )}
                {data.partial && <p className="muted">More queues wait than were compared: the promised shares are upper bounds.</p>}
              </>
            )}
          </Sliced>
        )}
      </Loaded>
    </>
  );
}

const NothingYet = () => (
  <Empty title="Nothing to compare yet">
    <p>After the first settled block, this table shows each queue's promised and received share.</p>
  </Empty>
);

/** Received share as a bar, promised share as a mark on it. */
function Share({ row }: { row: OriginFairness }) {
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
