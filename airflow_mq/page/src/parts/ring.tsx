/** The ready ring: the head at the top, the other queues clockwise, each as long as its backlog. */

import { useState, type KeyboardEvent } from "react";

import type { Arc, Overview } from "../types";
import { atLeast, bytes, compact, count, many } from "../words";
import { colour } from "./colours";

const SIZE = 400;
const MIDDLE = SIZE / 2;
const OUTER = 172;
const INNER = 126;
/** Smallest arc, in turns, so that a small queue is visible beside a large one. */
const LEAST = 0.012;

type Piece = { arc: Arc | null; from: number; to: number; name: string };

const keyOf = ({ arc }: Piece) => (arc ? `${arc.priority} ${arc.origin}` : "rest");

/** Start and end of each arc, in turns. */
export function pieces(overview: Overview): Piece[] {
  const parts: { arc: Arc | null; size: number; name: string }[] = overview.arcs.map((arc) => ({
    arc,
    size: arc.messages,
    name: arc.origin,
  }));
  const rest = overview.rest;
  if (rest.queues) parts.push({ arc: null, size: rest.messages, name: `${many(rest.queues, "more queue")}` });
  const least = Math.min(LEAST, 0.5 / parts.length);
  const total = parts.reduce((sum, one) => sum + one.size, 0) || 1;
  const wanted = parts.map((one) => Math.max(one.size / total, least));
  const all = wanted.reduce((sum, one) => sum + one, 0);
  let at = 0;
  return parts.map((one, index) => {
    const from = at;
    at += wanted[index]! / all;
    return { arc: one.arc, name: one.name, from, to: at };
  });
}

function point(turn: number, radius: number): string {
  const angle = turn * 2 * Math.PI;
  return `${(MIDDLE + radius * Math.sin(angle)).toFixed(2)} ${(MIDDLE - radius * Math.cos(angle)).toFixed(2)}`;
}

function band(from: number, to: number, inner: number, outer: number): string {
  // SVG cannot draw a whole circle as one arc.
  const end = Math.min(to, from + 0.9999);
  const large = end - from > 0.5 ? 1 : 0;
  return (
    `M${point(from, outer)}A${outer} ${outer} 0 ${large} 1 ${point(end, outer)}` +
    `L${point(end, inner)}A${inner} ${inner} 0 ${large} 0 ${point(from, inner)}Z`
  );
}

function about(piece: Piece, overview: Overview): string {
  if (!piece.arc) return `${piece.name}: ${count(overview.rest.messages)} messages, ${bytes(overview.rest.size)}`;
  const { arc } = piece;
  const parts = [many(arc.messages, "message"), bytes(arc.size)];
  if (arc.priority === "high") parts.push("high priority");
  if (arc.in_flight) parts.push(`${count(arc.in_flight)} in flight`);
  if (arc.paused) parts.push("paused");
  return `${arc.origin}: ${parts.join(", ")}`;
}

type Props = { overview: Overview; /** Whether the next block takes something of a queue. */ isNext: (arc: Arc) => boolean; /** Where an arc leads to, and where the rest does. */ lead: (arc: Arc | null) => string };

const STEPS: Record<string, number> = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

export function Ring({ overview, isNext, lead }: Props) {
  const [over, setOver] = useState<string | null>(null);
  const [stop, setStop] = useState<string | null>(null);
  const shown = pieces(overview);
  // The ring is one tab stop; arrow keys move within it.
  const at = Math.max(0, shown.findIndex((piece) => keyOf(piece) === stop));
  function turn(event: KeyboardEvent<SVGSVGElement>) {
    const step = STEPS[event.key];
    const next = event.key === "Home" ? 0 : event.key === "End" ? shown.length - 1 : step && (at + step + shown.length) % shown.length;
    if (next === undefined) return;
    event.preventDefault();
    event.currentTarget.querySelectorAll<SVGAElement>("a.arc")[next]?.focus();
  }
  const head = shown.find(({ arc }) => arc && isNext(arc));
  const gap = shown.length > 1 ? 0.0012 : 0;
  const label = `The ready ring: ${queues(overview)} with ${atLeast(many(overview.waiting_messages, "message"), !overview.exact)}. ${
    head ? `It is the turn of ${head.name}.` : ""
  } The table lists the same queues.`;
  return (
    <svg className="ring" viewBox={`0 0 ${SIZE} ${SIZE}`} role="group" aria-label={label} onKeyDown={turn}>
      <defs>
        <pattern id="amq-hatch" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
          <rect width="8" height="8" className="hatch-ground" />
          <rect width="3.5" height="8" className="hatch-line" />
        </pattern>
      </defs>
      {shown.map((piece, index) => (
        <a
          key={keyOf(piece)}
          href={lead(piece.arc)}
          className="arc"
          tabIndex={index === at ? 0 : -1}
          aria-label={about(piece, overview)}
          onMouseEnter={() => setOver(keyOf(piece))}
          onMouseLeave={() => setOver(null)}
          onFocus={() => {
            setOver(keyOf(piece));
            setStop(keyOf(piece));
          }}
          onBlur={() => setOver(null)}
        >
          <title>{about(piece, overview)}</title>
          <path
            d={band(piece.from + gap, piece.to - gap, INNER, piece === head ? OUTER + 8 : OUTER)}
            style={{ fill: colour(piece.arc?.origin ?? null) }}
          />
          {piece.arc?.paused && <path d={band(piece.from + gap, piece.to - gap, INNER, OUTER)} fill="url(#amq-hatch)" />}
          {piece.arc && piece.arc.in_flight > 0 && (
            <path
              className="flight"
              d={band(
                piece.from + gap,
                piece.from + gap + (piece.to - piece.from - 2 * gap) * flown(piece.arc),
                INNER - 13,
                INNER - 4,
              )}
              style={{ fill: colour(piece.arc.origin) }}
            />
          )}
        </a>
      ))}
      {head && (
        <g className="head" aria-hidden="true" transform={`rotate(${360 * head.from} ${MIDDLE} ${MIDDLE})`}>
          <path d={`M${MIDDLE} ${MIDDLE - OUTER - 9}l-9 -15h18z`} />
        </g>
      )}
      <Middle overview={overview} head={head} over={shown.find((piece) => keyOf(piece) === over) ?? null} />
    </svg>
  );
}

const queues = ({ ready, exact }: Overview) => atLeast(many(ready, "queue"), !exact);

const flown = (arc: Arc) => Math.min(1, Math.max(0.04, arc.in_flight / Math.max(1, arc.messages)));

function cut(text: string, most: number): string {
  const letters = [...text];
  return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : text;
}

function Middle({ overview, head, over }: { overview: Overview; head: Piece | undefined; over: Piece | null }) {
  const [name, figure, unit] = over ? details(over, overview) : ["next:", head ? cut(head.name, 16) : "–", queues(overview)];
  return (
    <g className="middle" aria-hidden="true">
      <text x={MIDDLE} y={MIDDLE - 34}>
        {name}
      </text>
      <text x={MIDDLE} y={MIDDLE + 10} className="large">
        {figure}
      </text>
      <text x={MIDDLE} y={MIDDLE + 48}>
        {unit}
      </text>
    </g>
  );
}

function details({ arc, name }: Piece, { rest }: Overview): string[] {
  const { messages } = arc ?? rest;
  const state = arc?.paused ? "paused" : arc?.in_flight ? `${compact(arc.in_flight)} in flight` : messages === 1 ? "message" : "messages";
  return [cut(name, 16), compact(messages), state];
}
