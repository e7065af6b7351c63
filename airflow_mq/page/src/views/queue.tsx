/** One queue: why it is waiting, its figures, its pages and their messages. */

import { useState, type ReactNode } from "react";

import { ApiError } from "../api";
import { useHere, useRing } from "../context";
import { colour } from "../parts/colours";
import { Remedy } from "../parts/command";
import { Action, Empty, Loaded, Notice } from "../parts/notice";
import { PauseButton, paused } from "../parts/pause";
import { SettingsButton } from "../parts/settings";
import { Table, type Column } from "../parts/table";
import type { Budget, Overview, Pause, Pauses, QueueDetail, QueuePage, Quota, Weight } from "../types";
import { age, bytes, clock, count, localised, many, ofSize, ofTime, percent, rate, weight } from "../words";
import { Peek } from "./peek";

export function QueueView({ origin, priority }: { origin: string; priority: string }) {
  const here = useHere();
  const queue = useRing<QueueDetail>("queue", { origin, priority });
  const gone = queue.error instanceof ApiError && queue.error.status === 404;
  return (
    <>
      <p className="row between">
        <a href={here.href("queues")}>← All queues</a>
        <a href={here.href("events", { origin })}>Events of {origin}</a>
      </p>
      {gone ? <Nothing origin={origin} /> : <Loaded from={queue}>{(data) => <Held queue={data} onDone={queue.refresh} />}</Loaded>}
    </>
  );
}

type HeadProps = { origin: string; high: boolean; pause: Pause | null; failed?: boolean; onDone: () => void };

function Head({ origin, high, pause, failed, onDone }: HeadProps) {
  const paths = useRing<Overview>("overview", {}, false).data?.paths ?? false;
  return (
    <>
      <div className="row between">
        <h2>
          <i className="dot" style={{ background: colour(origin) }} />
          {origin} {high && <span className="badge">high priority</span>}
          {pause && <span className="badge warn">paused</span>}
        </h2>
        <div className="row">
          <SettingsButton origin={origin} paths={paths} onDone={onDone} />
          <PauseButton origin={origin} pause={pause} failed={failed} paths={paths} onDone={onDone} />
        </div>
      </div>
      {pause && <Notice kind="warn">Paused {paused(pause)}</Notice>}
    </>
  );
}

/** A page, or the first messages wherever they are. */
export type Place = number | "first";
const opener = (page: Place) => `amq-page-${page}`;

function Held({ queue, onDone }: { queue: QueueDetail; onDone: () => void }) {
  const [page, setPage] = useState<Place | null>(null);
  return (
    <>
      <Head
        origin={queue.origin}
        high={queue.priority === "high"}
        pause={queue.paused}
        failed={queue.state === "failed"}
        onDone={onDone}
      />
      <Why queue={queue} />
      <Facts queue={queue} />
      <Limits budgets={queue.budgets} quotas={queue.quotas} />
      {(queue.messages > 0 || queue.pages.length > 0) && <Pages queue={queue} page={page} onPick={setPage} />}
      {page !== null && (
        <Peek
          key={page}
          origin={queue.origin}
          priority={queue.priority}
          page={page}
          onClose={() => {
            // Return the focus to the button that opened it.
            document.getElementById(opener(page))?.focus();
            setPage(null);
          }}
        />
      )}
    </>
  );
}

/** An origin without messages: it may be paused, and it may have events. */
function Nothing({ origin }: { origin: string }) {
  const here = useHere();
  const all = useRing<Pauses>("paused");
  return (
    <Loaded from={all}>
      {({ rows }) => (
        <>
          <Head origin={origin} high={false} pause={rows.find((one) => one.origin === origin) ?? null} onDone={all.refresh} />
          <Empty title="This queue is empty">
            <p>
              The <a href={here.href("events", { origin })}>events</a> of this origin record the outcomes of its messages.
            </p>
          </Empty>
        </>
      )}
    </Loaded>
  );
}

function Why({ queue }: { queue: QueueDetail }) {
  const { remedies } = queue.explain;
  return (
    <section className="card" aria-label="Why it is waiting">
      <h3>Why it is waiting</h3>
      <p className="sentence">{localised(queue.explain.sentence)}</p>
      {remedies.length > 0 && (
        <>
          <h4>What would change that</h4>
          <ul>
            {remedies.map((one) => (
              <li key={one.text + one.command}>
                <Remedy {...one} />
              </li>
            ))}
          </ul>
        </>
      )}
    </section>
  );
}

function Facts({ queue }: { queue: QueueDetail }) {
  const facts: [string, string][] = [
    ["In the queue", `${count(queue.messages)} (${bytes(queue.size)})`],
    ["Waiting", count(queue.ready)],
    ["Oldest", queue.oldest ? age(queue.oldest) : "–"],
    ["In flight", count(queue.in_flight)],
    ["Set aside", count(queue.set_aside)],
    ["Received / promised", `${percent(queue.received)} / ${percent(queue.promised)}`],
    ["In / out", `${rate(queue.in_rate)} / ${rate(queue.out_rate)}`],
    ...Object.entries(queue.settings ?? {}).map(([name, value]): [string, string] => [
      name.replaceAll("_", " ").replace(/^./, (first) => first.toUpperCase()),
      setting(value),
    ]),
  ];
  return (
    <dl className="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** What limits the queue, as bars: balances of budgets, and what is stored of quotas. */
function Limits({ budgets, quotas }: { budgets: Budget[]; quotas: Quota[] }) {
  if (!budgets.length && !quotas.length) return null;
  return (
    <section className="card" aria-label="Budgets and quotas">
      <h3>Budgets and quotas</h3>
      {budgets.map((one) => (
        <Level
          key={`budget ${one.path}`}
          path={one.path}
          limit={[one.rate, one.rate_bytes].filter(Boolean).join(", ")}
          label={`Balance of ${one.path}`}
          part={one.level}
        >
          {balance(one)} left{one.wakes_at && `; used up until ${clock(one.wakes_at)}`}
        </Level>
      ))}
      {quotas.map((one) => (
        <Level key={`quota ${one.path}`} path={one.path} limit={`quota ${ofSize(one.quota)}`} label={`Stored of the quota of ${one.path}`} part={one.part}>
          {bytes(one.stored)} of {ofSize(one.quota)} stored{one.part >= 1 && "; further messages are refused"}
        </Level>
      ))}
    </section>
  );
}

/** What is left of each burst; a debt is negative. */
function balance(one: Budget): string {
  const left = (value: number | null, burst: number | null, text: (amount: number) => string) =>
    value === null || burst === null ? [] : [`${value < 0 ? "−" : ""}${text(Math.abs(value))} of ${text(burst)}`];
  return [...left(one.left, one.burst, ofTime), ...left(one.left_bytes, one.burst_bytes, ofSize)].join(", ");
}

type LevelProps = { path: string; limit: string; label: string; part: number; children: ReactNode };

function Level({ path, limit, label, part, children }: LevelProps) {
  return (
    <div className="level">
      <span>
        <a href={useHere().href("queue", { origin: path })}>{path}</a>: {limit}
      </span>
      <progress max={1} value={Math.max(0, part)} aria-label={label} />
      <span>{children}</span>
    </div>
  );
}

function setting(value: unknown): string {
  if (value === null || value === undefined) return "–";
  if (typeof value === "object" && "time" in value && "size" in value) return weight(value as Weight);
  if (typeof value === "object") return Object.entries(value).map(([name, one]) => `${name} ${String(one)}`).join(", ");
  if (typeof value === "boolean") return value ? "yes" : "no";
  return typeof value === "number" ? count(value) : String(value);
}

function Pages({ queue, page, onPick }: { queue: QueueDetail; page: Place | null; onPick: (page: Place) => void }) {
  const here = useHere();
  const refusal = here.refusal("peek");
  const beyond = queue.messages - queue.pages.reduce((sum, one) => sum + one.messages, 0);
  const columns: Column<QueuePage>[] = [
    { name: "Page", head: true, cell: (row) => count(row.page) },
    { name: "State", cell: (row) => row.state },
    { name: "First", right: true, cell: (row) => count(row.first) },
    { name: "Remaining", right: true, cell: (row) => count(row.messages) },
    { name: "Bytes", right: true, cell: (row) => bytes(row.size) },
    {
      name: "Messages",
      cell: (row) => (
        <Action id={opener(row.page)} refusal={refusal} pressed={page === row.page} label={`Read messages of page ${row.page}`} onClick={() => onPick(row.page)}>
          Read messages
        </Action>
      ),
    },
  ];
  return (
    <section aria-label="Pages">
      <h3>Pages</h3>
      {queue.pages.length > 0 && (
        <Table caption="Pages" columns={columns} rows={queue.pages} id={(row) => String(row.page)} mark={(row) => row.page === page} />
      )}
      {beyond > 0 && (
        <p className="muted">
          {queue.pages.length > 0 && "And "}
          {many(beyond, "message")} {queue.pages.length > 0 ? "more are" : beyond === 1 ? "is" : "are"} in the inbox: blocks cut
          them into pages when they need them.
        </p>
      )}
      {queue.pages.length === 0 && (
        <Action id={opener("first")} refusal={refusal} pressed={page === "first"} label="Read the first messages" onClick={() => onPick("first")}>
          Read the first messages
        </Action>
      )}
    </section>
  );
}
