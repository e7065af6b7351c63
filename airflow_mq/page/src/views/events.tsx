/** Events, latest first. */

import { useHere } from "../context";
import { Listing } from "../parts/listing";
import { Empty } from "../parts/notice";
import { Table, type Column } from "../parts/table";
import { useSettled } from "../poll";
import { useWord } from "../route";
import type { Event } from "../types";
import { clock, count, kind, kinds, meaning, weight, where } from "../words";

export function EventsView() {
  const here = useHere();
  const [wanted, setWanted] = useWord("kind");
  const [typed, setTyped] = useWord("origin");
  const origin = useSettled(typed);
  return (
    <>
      <div className="row between">
        <h2>Events</h2>
        <div className="row">
          <select aria-label="Kind of event" value={wanted} onChange={(event) => setWanted(event.target.value)}>
            <option value="">all kinds</option>
            {kinds.map((name) => (
              <option key={name} value={name}>
                {kind(name)}
              </option>
            ))}
          </select>
          <input
            type="search"
            aria-label="Origin, exactly"
            placeholder="Origin, exactly"
            value={typed}
            onChange={(event) => setTyped(event.target.value)}
          />
          <a className="button" href={here.url("export/events.csv", { kind: wanted, origin })} download>
            CSV
          </a>
        </div>
      </div>
      <Listing<Event>
        what="events"
        label="events"
        query={{ kind: wanted, origin }}
        limit={100}
        empty={
          <Empty title={wanted || origin ? "No such event" : "No events yet"}>
            <p>An event records the outcome of a message: processed, set aside, discarded, and the actor. The ring's settings define how long events are kept.</p>
          </Empty>
        }
      >
        {(data) => <EventTable rows={data.rows} />}
      </Listing>
    </>
  );
}

function EventTable({ rows }: { rows: Event[] }) {
  const here = useHere();
  const columns: Column<Event>[] = [
    { name: "When", head: true, cell: (row) => row.at && <time dateTime={row.at}>{clock(row.at)}</time> },
    { name: "Event", cell: (row) => <span className={`badge ${meaning(row.name)}`}>{kind(row.name)}</span> },
    {
      name: "Message",
      // A closed day is an event of the ring.
      cell: (row) =>
        row.origin ? (
          <>
            <a href={here.href("queue", { origin: row.origin })}>{row.origin}</a>
            {where(row.address).slice(row.origin.length)}
          </>
        ) : (
          "–"
        ),
    },
    {
      name: "Block",
      right: true,
      cell: (row) => (row.block === null ? "–" : <a href={here.href("blocks", { block: String(row.block) })}>{count(row.block)}</a>),
    },
    { name: "Detail", wide: true, cell: (row) => <span className="why">{details(row)}</span> },
  ];
  return <Table caption="Events" columns={columns} rows={rows} id={(row) => row.seq} />;
}

/** Details that an event has, the reason first. */
const details = (event: Event) =>
  [
    event.success === false && "declined",
    event.why,
    event.error,
    event.weight && weight(event.weight),
    event.actor && `by ${event.actor}`,
    event.detail !== event.why && event.detail,
    event.id && `id ${event.id.slice(0, 12)}…`,
  ]
    .filter(Boolean)
    .join(" · ");
