/** Blocks as stacked bars: each queue's part of the limit, the prediction, and the limit. */

import { useState, type KeyboardEvent } from "react";

import type { BlockShare, Weight } from "../types";
import { many, ofSize, ofTime, percent } from "../words";
import { byName, colour } from "./colours";

export type Dimension = "time" | "size";

export type Bar = {
  id: string;
  name: string;
  limit: Weight | null;
  predicted: Weight | null;
  used: Weight | null;
  by_queue: BlockShare[];
  messages: number;
};

const HEIGHT = 180;
const WIDE = 34;
const STEP = 46;
const TOP = 16;
const LEFT = 44;

export const amount = (value: number, by: Dimension) => (by === "time" ? ofTime(value) : ofSize(value));

type Props = { bars: Bar[]; by: Dimension; chosen?: string | null; onPick?: (id: string) => void; label: string };

const STEPS: Record<string, number> = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

/** The text of a bar for screen readers. */
function about(bar: Bar, by: Dimension): string {
  const used = bar.used ? `${percent(part(bar.used, bar, by))} of the limit used, ` : "";
  return `Block ${bar.name}: ${used}${percent(part(bar.predicted, bar, by))} predicted, ${many(bar.messages, "message")} of ${many(bar.by_queue.length, "queue")}`;
}

export function Bars({ bars, by, chosen, onPick, label }: Props) {
  const [stop, setStop] = useState<string | null>(null);
  // All bars are one tab stop: the last focused one, else the chosen one, else the latest.
  const place = (id: string | null | undefined) => bars.findIndex((bar) => bar.id === id);
  const at = [place(stop), place(chosen)].find((one) => one >= 0) ?? bars.length - 1;
  function press(event: KeyboardEvent<SVGSVGElement>) {
    const step = STEPS[event.key];
    const next = event.key === "Home" ? 0 : event.key === "End" ? bars.length - 1 : step && Math.min(bars.length - 1, Math.max(0, at + step));
    if (next !== undefined) event.currentTarget.querySelectorAll<SVGGElement>(".bar")[next]?.focus();
    else if (onPick && bars[at] && (event.key === "Enter" || event.key === " ")) onPick(bars[at].id);
    else return;
    event.preventDefault();
  }
  const highest = Math.max(1, ...bars.map((bar) => Math.max(part(bar.predicted, bar, by), part(bar.used, bar, by))));
  const y = (share: number) => TOP + HEIGHT * (1 - share / highest);
  const width = LEFT + Math.max(6, bars.length) * STEP;
  return (
    <div className="scroll">
      <svg className="bars" width={width} height={TOP + HEIGHT + 24} role="group" aria-label={`${label}. The table lists the same figures.`} onKeyDown={press}>
        <text className="axis" x={LEFT - 8} y={y(1) + 4}>
          limit
        </text>
        <line className="ground" x1={LEFT - 4} x2={width} y1={y(0)} y2={y(0)} />
        {bars.map((bar, index) => (
          <g
            key={bar.id}
            className={`bar${chosen === bar.id ? " chosen" : ""}${onPick ? " pick" : ""}`}
            role={onPick ? "button" : "img"}
            tabIndex={index === at ? 0 : -1}
            aria-label={about(bar, by)}
            aria-pressed={onPick && chosen === bar.id}
            onFocus={() => setStop(bar.id)}
            onClick={() => onPick?.(bar.id)}
            transform={`translate(${LEFT + index * STEP} 0)`}
          >
            <rect className="catch" x={-4} y={0} width={STEP - 2} height={TOP + HEIGHT + 24} />
            <Stack bar={bar} by={by} y={y} />
            <text className="axis mid" x={WIDE / 2} y={TOP + HEIGHT + 17}>
              {bar.name}
            </text>
          </g>
        ))}
        <line className="limit" x1={LEFT - 4} x2={width} y1={y(1)} y2={y(1)} />
      </svg>
    </div>
  );
}

function Stack({ bar, by, y }: { bar: Bar; by: Dimension; y: (share: number) => number }) {
  const limit = bar.limit?.[by] || whole(bar, by);
  const total = bar.by_queue.reduce((sum, one) => sum + one.weight[by], 0);
  const end = part(bar.used ?? bar.predicted, bar, by);
  // The cost of servicing belongs to no queue; it is drawn on top, in grey.
  const parts = [...bar.by_queue].sort((a, b) => byName(a.origin, b.origin));
  const shares = parts.map((one) => ({ origin: one.origin, share: one.weight[by] / limit }));
  const scale = total / limit > end && total > 0 ? end / (total / limit) : 1;
  let at = 0;
  const stacked = shares.map((one) => {
    const from = at;
    at += one.share * scale;
    return { ...one, from, to: at };
  });
  const predicted = part(bar.predicted, bar, by);
  return (
    <>
      {stacked.map((one, index) => (
        <rect key={index} className="part" x={0} width={WIDE} y={y(one.to)} height={Math.max(0, y(one.from) - y(one.to))} style={{ fill: colour(one.origin) }}>
          <title>{`${one.origin ?? "other queues"}: ${percent(one.to - one.from)} of the limit`}</title>
        </rect>
      ))}
      {end > at && <rect x={0} width={WIDE} y={y(end)} height={y(at) - y(end)} className="overhead"><title>cost of servicing</title></rect>}
      {predicted > 0 && <rect className="predicted" x={-2} width={WIDE + 4} y={y(predicted)} height={y(0) - y(predicted)} />}
    </>
  );
}

const whole = (bar: Bar, by: Dimension) => Math.max(1, bar.predicted?.[by] ?? 0, bar.used?.[by] ?? 0);

function part(weight: Weight | null, bar: Bar, by: Dimension): number {
  return weight ? weight[by] / (bar.limit?.[by] || whole(bar, by)) : 0;
}

export function Legend({ origins }: { origins: (string | null)[] }) {
  return (
    <ul className="legend" aria-hidden="true">
      {origins.map((origin) => (
        <li key={origin ?? ""}>
          <i style={{ background: colour(origin) }} /> {origin ?? "other queues"}
        </li>
      ))}
      <li>
        <i className="outline" /> predicted
      </li>
    </ul>
  );
}

export function Choice<T extends string>(props: { label: string; value: T; of: Record<T, string>; onChange: (value: T) => void }) {
  return (
    <div className="choice" role="group" aria-label={props.label}>
      {(Object.keys(props.of) as T[]).map((one) => (
        <button key={one} type="button" aria-pressed={props.value === one} onClick={() => props.onChange(one)}>
          {props.of[one]}
        </button>
      ))}
    </div>
  );
}
