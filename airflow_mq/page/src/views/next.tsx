/** Forecast of the next blocks, also with other shares and another limit. It changes nothing. */

import { useState } from "react";

import { useHere, useRing } from "../context";
import { amount, Bars, Choice, Legend, type Dimension } from "../parts/bars";
import { Named } from "../parts/named";
import { Empty, Failure, Loaded } from "../parts/notice";
import { Table, type Column } from "../parts/table";
import { useLast, usePoll, useSettled } from "../poll";
import type { ForecastBlock, Overview, Weight } from "../types";
import { atLeast, count, many, percent, weight } from "../words";
import { DIMENSIONS, origins } from "./blocks";

const ORDERS = ["deficit", "rotation", "shuffle"];
const MOST_SHARES = 8;

export function NextView() {
  const overview = useRing<Overview>("overview", {}, false);
  return <Loaded from={overview}>{(data) => <Forecast key={data.ring} overview={data} />}</Loaded>;
}

type Settings = { factor: Record<Dimension, number>; shares: Record<string, number>; order: string; blocks: number };

const UNCHANGED = { time: 100, size: 100 };

function Forecast({ overview }: { overview: Overview }) {
  const here = useHere();
  const [by, setBy] = useState<Dimension>("time");
  const [settings, setSettings] = useState<Settings>({ factor: UNCHANGED, shares: {}, order: "", blocks: 5 });
  const asked = useSettled(JSON.stringify(request(settings, overview.limit)), 300);
  const key = JSON.stringify([here.conn, here.ring, asked]);
  const answer = usePoll<{ blocks: ForecastBlock[] }>(key, (signal) => here.post("dry-run", JSON.parse(asked), signal), null, false);
  const last = useLast(answer.data);
  return (
    <>
      <div className="row between">
        <h2>The next blocks</h2>
        <Choice label="Part of the weight" value={by} of={DIMENSIONS} onChange={setBy} />
      </div>
      <p className="muted">The blocks that would be planned if no message arrived. Try another limit or other shares: nothing is stored.</p>
      <div className="split uneven">
        <div aria-busy={answer.data === null && !answer.error}>
          {answer.error && answer.data === null ? <Failure error={answer.error} /> : last ? <Outcome blocks={last.blocks} by={by} /> : <p className="muted">Planning…</p>}
        </div>
        <Controls overview={overview} settings={settings} onChange={setSettings} />
      </div>
    </>
  );
}

function request(settings: Settings, limit: Weight | null) {
  const changed = settings.factor.time !== 100 || settings.factor.size !== 100;
  return {
    blocks: settings.blocks,
    ...(limit && changed && { limit: limited(settings, limit) }),
    ...(Object.keys(settings.shares).length > 0 && { shares: settings.shares }),
    ...(settings.order && { order: settings.order }),
  };
}

const limited = (settings: Settings, limit: Weight): Weight => ({
  time: Math.max(1, Math.round((limit.time * settings.factor.time) / 100)),
  size: Math.max(1, Math.round((limit.size * settings.factor.size) / 100)),
});

function Controls({ overview, settings, onChange }: { overview: Overview; settings: Settings; onChange: (settings: Settings) => void }) {
  const { limit } = overview;
  const now = limit && limited(settings, limit);
  const change = (part: Partial<Settings>) => onChange({ ...settings, ...part });
  const largest = [...overview.arcs].sort((a, b) => b.messages - a.messages).slice(0, MOST_SHARES);
  const shown = [...new Set(largest.map((arc) => arc.origin))];
  return (
    <form className="card controls" aria-label="Settings of the forecast" onSubmit={(event) => event.preventDefault()}>
      {now ? (
        (Object.keys(DIMENSIONS) as Dimension[]).map((one) => (
          <Slider
            key={one}
            label={`${DIMENSIONS[one]} limit`}
            value={settings.factor[one]}
            from={10}
            to={400}
            step={10}
            text={amount(now[one], one)}
            onChange={(percent) => change({ factor: { ...settings.factor, [one]: percent } })}
          />
        ))
      ) : (
        <p className="muted">This ring has no limit: each DAG sets its own.</p>
      )}
      <Slider label="Blocks" value={settings.blocks} from={1} to={20} step={1} text={count(settings.blocks)} onChange={(blocks) => change({ blocks })} />
      <label className="field">
        <span>Order</span>
        <select value={settings.order} onChange={(event) => change({ order: event.target.value })}>
          <option value="">unchanged ({overview.order})</option>
          {ORDERS.filter((one) => one !== overview.order).map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
      </label>
      {shown.length > 0 && <h3>Shares</h3>}
      {shown.map((origin) => (
        <Slider
          key={origin}
          label={origin}
          value={settings.shares[origin] ?? 0}
          from={0}
          to={20}
          step={1}
          text={origin in settings.shares ? count(settings.shares[origin]!) : "unchanged"}
          onChange={(share) => {
            const { [origin]: _, ...others } = settings.shares;
            change({ shares: share ? { ...others, [origin]: share } : others });
          }}
        />
      ))}
      <button type="button" onClick={() => onChange({ factor: UNCHANGED, shares: {}, order: "", blocks: 5 })}>
        Reset
      </button>
    </form>
  );
}

function Slider(props: {
  label: string;
  value: number;
  from: number;
  to: number;
  step: number;
  text: string;
  onChange: (value: number) => void;
}) {
  return (
    <label className="field">
      <span className="row between">
        <span>{props.label}</span> <strong>{props.text}</strong>
      </span>
      <input
        type="range"
        min={props.from}
        max={props.to}
        step={props.step}
        value={props.value}
        aria-valuetext={props.text}
        onChange={(event) => props.onChange(Number(event.target.value))}
      />
    </label>
  );
}

function Outcome({ blocks, by }: { blocks: ForecastBlock[]; by: Dimension }) {
  const taken = blocks.filter((one) => one.messages > 0);
  if (taken.length === 0)
    return (
      <Empty title="The next block takes nothing">
        <p>No message is waiting, or all are in flight, paused, too heavy, or wait for a budget. Open a queue to see which.</p>
        {blocks[0] && <LeftOut block={blocks[0]} />}
      </Empty>
    );
  const rows = taken.flatMap((block) => block.by_queue.map((one) => ({ n: block.number, ...one })));
  const listed = new Set(rows.map((one) => `${one.priority} ${one.origin}`)).size;
  // A block lists its heaviest queues.
  const queues = Math.max(listed, ...taken.map((block) => block.queues));
  const columns: Column<(typeof rows)[number]>[] = [
    { name: "Queue", head: true, cell: (one) => <Named origin={one.origin} priority={one.priority} /> },
    { name: "Block", right: true, cell: (one) => count(one.n) },
    { name: "Messages", right: true, cell: (one) => count(one.messages) },
    { name: "Weight", right: true, cell: (one) => weight(one.weight) },
    { name: "Of the block", right: true, cell: (one) => percent(one.share) },
  ];
  return (
    <>
      <Bars
        label="The next blocks, weight by queue against the limit"
        bars={taken.map((one) => ({ id: String(one.number), name: `+${one.number}`, limit: one.limit, predicted: one.predicted, used: null, by_queue: one.by_queue, messages: one.messages }))}
        by={by}
      />
      <Legend origins={origins(taken)} />
      <p className="muted" role="status">
        {many(taken.length, "block")} would take {many(taken.reduce((sum, one) => sum + one.messages, 0), "message")} of{" "}
        {atLeast(many(queues, "queue"), taken.length > 1 && taken.some((block) => block.queues > block.by_queue.length))}.
      </p>
      <div className="tall" tabIndex={0} role="region" aria-label="What the next blocks take">
        <Table caption="What the next blocks take" columns={columns} rows={rows} id={(one) => `${one.n} ${one.priority} ${one.origin}`} />
      </div>
      <LeftOut block={blocks[0]!} />
    </>
  );
}

/** Reasons for which a block takes nothing of a queue, by their names in the ledger. */
const LEFT_OUT: Record<string, string> = {
  emptied: "all its messages are in flight, set aside or expired",
  limit: "the block is full when its turn comes",
  spent: "it has not saved enough for its first message yet",
  most: "its most, or that of a group above it, is used up when its turn comes",
  yielded: "its processor asked to stop",
  paused: "paused",
  "in flight": "its first messages are in flight",
  backoff: "its last attempt failed; it is tried again later",
  budget: "its budget, or that of a group above it, is used up",
};

function LeftOut({ block }: { block: ForecastBlock }) {
  if (!block.left_out.length) return null;
  const whose = block.server ? ` of ${block.server}` : "";
  const heavy = (needs: Weight) => `its first message needs ${weight(needs)}, more than a block${whose} carries (${weight(block.limit)})`;
  return (
    <details>
      <summary>
        {many(block.left_out_queues, "queue that the next block looks at gets", "queues that the next block looks at get")} nothing of it
      </summary>
      <ul>
        {block.left_out.map((one) => (
          <li key={`${one.priority} ${one.origin}`}>
            <strong>{one.origin}</strong>
            {one.priority === "high" && " (high)"}: {one.needs ? heavy(one.needs) : (LEFT_OUT[one.reason] ?? one.reason)}
          </li>
        ))}
        {block.left_out_queues > block.left_out.length && <li>and {count(block.left_out_queues - block.left_out.length)} more</li>}
      </ul>
    </details>
  );
}
