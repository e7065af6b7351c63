/** Requests to the JSON API, and readable messages for their errors. */

import type { Permissions } from "./types";

/** A permission of the signed-in user. */
export type Can = keyof Permissions;
/** A page of any list. */
export type Paged<T> = { rows: T[]; next: string | null; total?: number | null; counted?: boolean };

/** Milliseconds for any response: the server itself ends readings after ten seconds, and decisions after sixty. */
const LONGEST = 90_000;
/** Milliseconds for the response of a check, which the server ends after ten minutes. */
export const LONGEST_CHECK = 660_000;

type Query = Record<string, string | number | boolean | null | undefined>;

export class ApiError extends Error {
  constructor(
    message: string,
    readonly status: number,
    /** Errors of the named parts of an invalid request. */
    readonly fields: Record<string, string> = {},
  ) {
    super(message);
  }
}

/** Airflow's root URL, also behind a path prefix: the UI and the standalone page both set <base>. */
export const root = () => document.baseURI;
export const below = (path: string) => new URL(path, root()).href;
export const ringPath = (conn: string, ring: string) =>
  `stores/${encodeURIComponent(conn)}/rings/${encodeURIComponent(ring)}`;

export function url(path: string, query: Query = {}): string {
  const found = new URL(`airflow-mq/api/v1/${path}`, root());
  for (const [name, value] of Object.entries(query))
    if (value !== null && value !== undefined && value !== "") found.searchParams.set(name, String(value));
  return found.href;
}

export const get = <T>(path: string, query: Query = {}, signal?: AbortSignal) =>
  send<T>(url(path, query), { signal });

export const post = <T>(path: string, body: unknown = {}, signal?: AbortSignal, longest = LONGEST) => {
  // A form on another site cannot send this header.
  const headers = { "Content-Type": "application/json", "X-Airflow-Mq": "1" };
  return send<T>(url(path), { method: "POST", headers, body: JSON.stringify(body), signal }, longest);
};

/** @param options `signal` only for readings: the page itself may give them up */
async function send<T>(address: string, options: RequestInit, longest = LONGEST): Promise<T> {
  const late = AbortSignal.timeout(longest);
  const signal = options.signal ? AbortSignal.any([options.signal, late]) : late;
  const unknown = options.signal ? "" : " It is not known whether this was done: look before you repeat it.";
  let answer: Response;
  let text: string;
  try {
    answer = await fetch(address, { credentials: "same-origin", cache: "no-store", ...options, signal });
    text = await answer.text();
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(`Airflow's API server does not answer.${unknown}`, 0);
  }
  const body = (await new Response(text).json().catch(() => null)) as (T & Answer) | null;
  if (answer.ok && body === null) throw new ApiError(`Another server answered, perhaps to sign you in: reload this page.${unknown}`, 0);
  if (answer.ok) return body as T;
  throw new ApiError(words(answer.status, body?.detail), answer.status, body?.fields);
}

type Answer = { detail?: unknown; fields?: Record<string, string> };

function words(status: number, detail: unknown): string {
  if (status === 401) return "You are not signed in to Airflow, or your session has expired.";
  if (typeof detail === "string") return detail;
  if (Array.isArray(detail)) return detail.map((error: { msg?: string }) => error.msg ?? String(error)).join("; ");
  return `The server answered with status ${status}. See the API server's log.`;
}
