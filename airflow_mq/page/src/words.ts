/** Formatting of numbers, weights, times and states. */

import type { Weight } from "./types";

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

export const count = (number: number) => whole.format(number);
export const compact = (number: number) => (number < 100_000 ? whole : short).format(number);
/** A figure, marked if it is a lower bound. */
export const atLeast = (figure: string, more: boolean | undefined) => (more ? `≥ ${figure}` : figure);
export const many = (number: number, one: string, more = `${one}s`) => `${count(number)} ${number === 1 ? one : more}`;

export function bytes(number: number): string {
  let value = number;
  let unit = 0;
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? whole.format(Math.round(value)) : value.toFixed(1)} ${UNITS[unit]}`;
}

/** Weights count milliseconds; large ones are shown in larger units. */
export const millis = (number: number) => (number < 10_000 ? `${count(number)} ms` : span(number / 1000));
export const weight = (one: Weight | null) => (one ? `${millis(one.time)} · ${bytes(one.size)}` : "no limit");
/** The server is the DAG or program whose block it is, if it is known. */
export const tooHeavy = (needs: Weight, limit: Weight, server: string | null) =>
  `Its first message needs ${weight(needs)}, more than a block${server ? ` of ${server}` : ""} carries (${weight(limit)})`;
export const percent = (part: number | null) => (part === null ? "–" : `${(100 * part).toFixed(part < 0.0995 ? 1 : 0)} %`);
/** A deviation with its sign. */
export const off = (part: number | null) => (part === null ? "–" : `${part < 0 ? "−" : part > 0 ? "+" : ""}${percent(Math.abs(part))}`);
export const rate = (number: number | null) => (number === null ? "–" : `${compact(number)}/min`);
export const where = (address: string) => address.replace(/:high$/, " (high)");

/** The invisible characters of `airflow_mq.core.characters`, and all that control the direction of text. */
const INVISIBLE =
  /[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/gu;

/** Escape invisible and direction-changing characters, like the command line: no origin looks like another. */
export const visible = (text: string) => text.replaceAll(INVISIBLE, escaped);

function escaped(character: string): string {
  const code = character.codePointAt(0)!;
  const [mark, digits] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
  return `\\${mark}${code.toString(16).padStart(digits as number, "0")}`;
}

const STEPS: [number, string][] = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "min"],
];

export function span(seconds: number): string {
  for (const [size, name] of STEPS) if (seconds >= 2 * size) return `${count(Math.round(seconds / size))} ${name}`;
  return `${count(Math.max(0, Math.round(seconds)))} s`;
}

export const age = (time: string, now = Date.now()) => span((now - Date.parse(time)) / 1000);
/** Server text with its times in the user's format. */
export const localised = (text: string) => text.replaceAll(/(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) UTC/g, (_, day, time) => clock(`${day}T${time}Z`));
/** The time of day, with the day if that is another one. */
export function hour(time: string, now: number): string {
  const at = new Date(time);
  const same = at.toDateString() === new Date(now).toDateString();
  return at.toLocaleString(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...(!same && { day: "numeric", month: "short" }) });
}
export const clock = (time: string) => new Date(time).toLocaleString(undefined, { dateStyle: "short", timeStyle: "medium" });

/** Events by their names: words, and the colour of their meaning. */
const KINDS: Record<string, [string, string]> = {
  Processed: ["Processed", "good"],
  ProcessingFailed: ["Processing failed", "bad"],
  SetAside: ["Set aside", "warn"],
  PageRemoved: ["Page removed", ""],
  Discarded: ["Discarded", "bad"],
  Requeued: ["Requeued", ""],
  Executed: ["Executed", "good"],
  Returned: ["Returned", "warn"],
  AttemptsExhausted: ["Attempts exhausted", "bad"],
  Expired: ["Expired", "bad"],
  Swept: ["Swept", "warn"],
  Transferred: ["Transferred", ""],
};

export const kinds = Object.keys(KINDS);
export const kind = (name: string) => KINDS[name]?.[0] ?? name;
export const meaning = (name: string) => KINDS[name]?.[1] ?? "";
