/** Whether the ring is serviced: the last block, the next one, what is late, and totals. */

import { useHere } from "../context";
import type { Overview } from "../types";
import { age, atLeast, bytes, count, hour, localised, many, span } from "../words";
import { Remedy } from "./command";
import { Notice } from "./notice";

export function ServedLine({ overview }: { overview: Overview }) {
  const here = useHere();
  const { served, last_block: block } = overview;
  const now = Date.parse(overview.now);
  if (!served.ever) return <p className="answer">No block has run in this ring yet. Unpause a DAG that contains block(), or add one to your DAGs folder.</p>;
  if (!served.last) return <p className="answer">No block has run within the kept history of this ring.</p>;
  return (
    <p className="answer">
      Last block <time dateTime={served.last}>{age(served.last, now)} ago</time>, {next(served.next, now)}
      <span className="muted">
        {served.server && <> By {served.server}.</>}
        {block && (
          <>
            {" "}
            <a href={here.href("blocks", { block: String(block.id) })}>
              Block {count(block.id)} {block.state === "planned" ? "in progress" : block.state}
            </a>
          </>
        )}
      </span>
    </p>
  );
}

function next(time: string | null, now: number): string {
  if (time === null) return "next unknown.";
  const late = (now - Date.parse(time)) / 1000;
  return late < 60 ? `next expected ${hour(time, now)}.` : `next expected ${hour(time, now)}, ${span(late)} late.`;
}

export function OverdueNotices({ overview }: { overview: Overview }) {
  // Without any block, the line above shows that.
  if (!overview.served.ever) return null;
  return overview.overdue.map(({ sentence, remedy }) => (
    <Notice key={sentence} kind="bad">
      <p className="sentence">{localised(sentence)}</p>
      <Remedy {...remedy} />
    </Notice>
  ));
}

/** Upper bound of the server's count of set-aside messages. */
const MOST_ASIDE = 10_000;

export function Totals({ overview }: { overview: Overview }) {
  const here = useHere();
  const sure = (figure: string) => atLeast(figure, !overview.exact);
  const totals: [string, string, string?][] = [
    ["messages wait", `${sure(count(overview.waiting_messages))} (${sure(bytes(overview.waiting_bytes))})`],
    ["of them in flight", count(overview.in_flight), here.href("blocks")],
    [`of ${sure(many(overview.queues, "queue"))} wait`, sure(count(overview.ready))],
    ["set aside for a decision", atLeast(count(overview.set_aside), overview.set_aside >= MOST_ASIDE), here.href("set-aside")],
    [overview.paused === 1 ? "paused origin" : "paused origins", count(overview.paused), here.href("queues", { paused: "shown" })],
  ];
  const shown = totals.filter(([, value]) => value !== "0");
  return (
    <ul className="totals" aria-label="Totals">
      {shown.map(([name, value, link]) => (
        <li key={name}>
          {link ? (
            <a href={link}>
              <strong>{value}</strong> {name}
            </a>
          ) : (
            <>
              <strong>{value}</strong> {name}
            </>
          )}
        </li>
      ))}
    </ul>
  );
}
