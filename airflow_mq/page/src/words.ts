/** Formatting of numbers, weights, times and states; numbers, weights and times as `airflow_mq.words` writes them. */

import type { Weight } from "./types";

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (number: number) => whole.format(number);
export const compact = (number: number) => (number < 100_000 ? whole : short).format(number);
/** A figure, marked if it is a lower bound. */
export const atLeast = (figure: string, more: boolean | undefined) => (more ? `≥ ${figure}` : figure);
export const many = (number: number, one: string, more = `${one}s`) => `${count(number)} ${number === 1 ? one : more}`;

/** Round as Python does: where two roundings are as near, to the even digit. */
function round(value: number, digits: 0 | 1): string {
  const [half, evens] = digits ? [0.25, 5] : [0.5, 0.5];
  const near = value % (2 * half) === half ? Math.round(value * evens) / evens : value;
  return digits ? near.toFixed(1) : count(Number(near.toFixed(0)));
}

/** A number of bytes, rounded. */
export function bytes(number: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let value = number;
  while (value >= 999.5 && units.length > 1) {
    value /= 1000;
    units.shift();
  }
  return `${round(value, units[0] === "B" || value >= 99.95 ? 0 : 1)} ${units[0]}`;
}

type Units = [number, string][];
const TIMES: Units = [[86_400_000, "d"], [3_600_000, "h"], [60_000, "min"], [1_000, "s"], [1, "ms"]];
const SIZES: Units = [
  [2 ** 40, "TiB"], [1e12, "TB"], [2 ** 30, "GiB"], [1e9, "GB"], [2 ** 20, "MiB"], [1e6, "MB"], [2 ** 10, "KiB"], [1e3, "kB"], [1, "B"],
];

/** The exact text, in the largest unit that needs at most one decimal; null if it is long. */
function exact(amount: number, units: Units): string | null {
  const [unit, name] = units.find(([unit]) => amount >= unit && (amount * 10) % unit === 0) ?? [1, units.at(-1)![1]];
  const text =
    name === "ms" && amount >= 1_000
      ? `${count(Math.floor(amount / 1_000))}.${String(amount % 1_000).padStart(3, "0")} s`
      : `${count(Math.floor(amount / unit))}${amount % unit ? `.${Math.floor((amount * 10) / unit) % 10}` : ""} ${name}`;
  return text.length <= 7 ? text : null;
}

/** The parts of a weight: milliseconds and bytes, exact where that is short and rounded otherwise. */
export const ofTime = (time: number) => exact(time, TIMES) ?? span(time / 1_000);
export const ofSize = (size: number) => exact(size, SIZES) ?? bytes(size);
export const weight = (one: Weight | null) => (one ? `${ofTime(one.time)} · ${ofSize(one.size)}` : "no limit");
export const percent = (part: number | null) => (part === null ? "–" : `${(100 * part).toFixed(part < 0.0995 ? 1 : 0)} %`);
/** A deviation with its sign. */
export const off = (part: number | null) => (part === null ? "–" : `${part < 0 ? "−" : part > 0 ? "+" : ""}${percent(Math.abs(part))}`);
export const rate = (number: number | null) => (number === null ? "–" : `${compact(number)}/min`);
export const where = (address: string) => address.replace(/:high$/, " (high)");

/** The invisible characters of `airflow_mq.engine.rules.characters`, and all that control the direction of text. */
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
  for (const [size, name] of STEPS) if (seconds >= 2 * size) return `${round(seconds / size, 0)} ${name}`;
  return `${round(Math.max(0, seconds), 0)} s`;
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
  BudgetExhausted: ["Budget used up", "warn"],
  DayClosed: ["Day closed", ""],
};

export const kinds = Object.keys(KINDS);
export const kind = (name: string) => KINDS[name]?.[0] ?? name;
export const meaning = (name: string) => KINDS[name]?.[1] ?? "";
