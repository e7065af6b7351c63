// What the drivers in JavaScript share; drivers/common.py tells what a driver is.
import { randomBytes } from "node:crypto";
import { readFileSync, writeSync } from "node:fs";
import { createInterface } from "node:readline";

const SIZE = 128;
const ORIGINS = 100;

export const dsn = process.env.BENCH_DSN;

export function messages(count) {
  const origin = (i) => "origin-" + String(i % ORIGINS).padStart(6, "0");
  const width = SIZE - JSON.stringify({ o: origin(0), m: "" }).length;
  const noise = randomBytes(Math.ceil((width * count) / 2)).toString("hex");
  return Array.from({ length: count }, (_, i) => ({ o: origin(i), m: noise.slice(i * width, (i + 1) * width) }));
}

export function* chunks(items, size) {
  for (let start = 0; start < items.length; start += size) yield items.slice(start, start + size);
}

// Seconds of processor time that the last timed work took.
let client;

export async function timed(work) {
  globalThis.gc?.();
  const before = process.cpuUsage();
  const start = performance.now();
  await work();
  const seconds = (performance.now() - start) / 1000;
  const { user, system } = process.cpuUsage(before);
  client = (user + system) / 1e6;
  return seconds;
}

// Each of `clients` sends its share of `count` messages, one after the other.
export async function singles(count, clients, send) {
  const share = Math.floor(count / clients);
  const todo = messages(share * clients);
  const client = async (number) => {
    for (let i = number * share; i < (number + 1) * share; i++) await send(todo[i]);
  };
  const seconds = await timed(() => Promise.all(Array.from({ length: clients }, (_, i) => client(i))));
  return { seconds, count: share * clients };
}

// Microseconds since 1970, as drivers/common.py stamps them.
const STAMP = 16;
const now = () => Math.round((performance.timeOrigin + performance.now()) * 1000);
export const waitOf = (message) => now() - Number(message.m.slice(0, STAMP));

// Each of `clients` begins a message every so often, or later if the one before it takes longer.
export async function steady(count, rate, clients, send) {
  const share = Math.floor(count / clients);
  const todo = messages(share * clients);
  const gap = (clients / rate) * 1000;
  const client = async (number) => {
    let due = performance.now() + Math.random() * gap;
    for (let i = number * share; i < (number + 1) * share; i++, due += gap) {
      const early = due - performance.now();
      if (early > 0) await new Promise((resolve) => setTimeout(resolve, early));
      await send({ o: todo[i].o, m: String(now()) + todo[i].m.slice(STAMP) });
    }
  };
  return { seconds: await timed(() => Promise.all(Array.from({ length: clients }, (_, i) => client(i)))) };
}

// Collects waits; `all` resolves with the answer after `count` of them.
export function collector(count) {
  const waits = [];
  let finish;
  const all = new Promise((resolve) => (finish = resolve));
  const hear = (message) => {
    if (waits.push(waitOf(message)) === count) finish({ waits });
  };
  return { hear, all };
}

export function versionOf(name) {
  const found = JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url)));
  return `${name} ${found.version}, node ${process.versions.node}`;
}

export async function serve(commands) {
  for await (const line of createInterface({ input: process.stdin })) {
    const { do: name, ...order } = JSON.parse(line);
    let told;
    try {
      client = undefined;
      told = { ...(await commands[name](order)), client };
    } catch (error) {
      told = { error: String(error), traceback: error.stack };
    }
    writeSync(1, "= " + JSON.stringify(told) + "\n");
  }
  process.exit(0);
}
