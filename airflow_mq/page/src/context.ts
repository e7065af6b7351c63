/** Context of every view: the store and ring it shows, and the user's permissions. */

import { createContext, useContext } from "react";

import { get, post, ringPath, url, type Can } from "./api";
import { usePoll, type Polled } from "./poll";
import { href } from "./route";
import type { Me } from "./types";

export type Here = {
  conn: string;
  ring: string;
  me: Me;
  /** Announce a result, on screen and to screen readers. */
  announce: (text: string, link?: { href: string; text: string }, kind?: "good" | "warn") => void;
};

export const HereContext = createContext<Here | null>(null);

export type Query = Record<string, string | number | boolean | null | undefined>;

/** The Airflow permission behind each of ours. */
const NEEDED: Record<Can, (conn: string, dag: string) => string> = {
  read: () => "see plugins",
  peek: (conn) => `read the connection ${conn}`,
  write: (conn) => `edit the connection ${conn}`,
  trigger: (_, dag) => `trigger the DAG ${dag}`,
};

export function useHere() {
  const here = useContext(HereContext)!;
  const path = (what: string) => `${ringPath(here.conn, here.ring)}/${what}`;
  return {
    ...here,
    get: <T>(what: string, query?: Query, signal?: AbortSignal) => get<T>(path(what), query, signal),
    post: <T>(what: string, body?: unknown, signal?: AbortSignal, longest?: number) => post<T>(path(what), body, signal, longest),
    url: (what: string, query?: Query) => url(path(what), query),
    href: (view: string, of: Record<string, string | null | undefined> = {}) =>
      href(view, { conn: here.conn, ring: here.ring, ...of }),
    /** The reason why the user may not do this, or null. */
    refusal: (what: Can) =>
      here.me.can[what] ? null : `${here.me.user} needs the permission to ${NEEDED[what](here.conn, here.me.execute_dag.dag_id)}.`,
  };
}

/** One response of the ring's API, refreshed while it is shown. */
export function useRing<T>(what: string, query: Query = {}, live = true): Polled<T> {
  const here = useHere();
  const key = JSON.stringify([here.conn, here.ring, what, query]);
  return usePoll<T>(key, (signal) => here.get<T>(what, query, signal), live ? here.me.refresh_seconds : null);
}
