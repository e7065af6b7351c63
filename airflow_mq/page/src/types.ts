/** What the JSON API answers; its routes are in airflow_mq/api. */

export type Weight = { time: number; size: number };
export type Address = { origin: string; page: number; index: number; priority: Priority };
export type Priority = "regular" | "high";
export type Can = "read" | "peek" | "write" | "trigger";

export type Me = {
  user: string;
  can: Record<Can, boolean>;
  refresh_seconds: number;
};

export type Store = { conn_id: string; kind: string | null; rings: string[]; error: string | null };

export type Arc = {
  origin: string;
  priority: Priority;
  messages: number;
  bytes: number;
  in_flight: number;
  paused: boolean;
  is_head: boolean;
  /** The figures are at least these. */
  more?: boolean;
};

export type Overview = {
  ring: string;
  order: string;
  limit: Weight | null;
  high: boolean;
  paths: boolean;
  now: string;
  ready: number;
  queues: number;
  waiting_messages: number;
  waiting_bytes: number;
  in_flight: number;
  set_aside: number;
  paused: number;
  oldest: string | null;
  head: string | null;
  arcs: Arc[];
  rest: { queues: number; messages: number; bytes: number } | null;
  last_block: BlockRow | null;
  /** Whether the totals are counted to the end; else they are at least these. */
  exact?: boolean;
};

export type Pause = { reason: string; who: string | null; until: string | null; below: boolean };
export type PausedRow = { origin: string; pause: Pause };

export type QueueRow = {
  origin: string;
  priority: Priority;
  messages: number;
  bytes: number;
  ready: number;
  in_flight: number;
  set_aside: number;
  oldest: string | null;
  paused: Pause | null;
  share: number;
  promised: number | null;
  received: number | null;
  in_rate: number | null;
  out_rate: number | null;
  why: string;
  more?: boolean;
};

export type PageRow = { page: number; first: number; remaining: number; remaining_bytes: number; state: string };

export type Queue = QueueRow & {
  explain: { reason: string; sentence: string; block: number | null; changes: string[] };
  pages: PageRow[];
  settings: Record<string, unknown>;
};

export type Payload = { shown: number; truncated: boolean; text: string | null; json: unknown; hex: string };

export type MessageRow = {
  address: Address;
  id: string;
  size: number;
  state: string;
  attempts: number;
  not_before: string | null;
  expires: string | null;
  weight: Weight | null;
  headers: Record<string, string>;
  payload: Payload | null;
};

export type Part = { origin: string | null; weight: Weight; messages: number };
/** Which Spark application a task's job is, and where Spark shows it. */
export type Job = { id: string | null; url: string | null };
export type Task = {
  task_id: string;
  map_index: number;
  name: string;
  state: string | null;
  tries: number;
  seconds: number | null;
  url: string;
  job: Job | null;
};

export type BlockRow = {
  id: number;
  key: string | null;
  state: string;
  planned_at: string;
  ended_at: string | null;
  deadline: string | null;
  limit: Weight | null;
  predicted: Weight | null;
  used: Weight | null;
  messages: number;
  processed: number;
  failed: number;
  went_back: number;
  set_aside: number;
  by_queue: Part[];
  run: { dag_id: string; run_id: string; url: string } | null;
  tasks: Task[];
};

export type DryBlock = {
  n: number;
  limit: Weight;
  used: Weight;
  messages: number;
  by_queue: (Part & { share?: number })[];
  left_out: { origin: string; reason: string }[];
};

export type AsideRow = {
  address: Address;
  text: string;
  id: string;
  size: number;
  asked: Weight | null;
  limit: Weight | null;
  fits_now: boolean | null;
  reason: string;
  block: number | null;
  age_seconds: number | null;
  /** Why the last attempt failed, of a message that was tried too often. */
  error: string | null;
};

export type EventRow = {
  id: number | string;
  at: string;
  kind: string;
  origin: string;
  page: number;
  index: number;
  block: number | null;
  detail: unknown;
};

export type FairnessRow = {
  origin: string;
  priority: Priority;
  promised: number | null;
  received: number | null;
  error: number | null;
  longest_wait: number | null;
};

export type Fairness = { rows: FairnessRow[]; jain: number | null; blocks: number; queues: number };
export type Violation = { what: string; where: string; hint: string };
/** The first violations, and how many there are in all. */
export type Checked = { violations: Violation[]; count: number; took_seconds: number };
export type Paged<T> = { rows: T[]; next: string | null; total?: number | null; /** Whether all were counted that are sorted. */ counted?: boolean };
export type Refusals = { refused: { address: Address; detail: string }[] };
