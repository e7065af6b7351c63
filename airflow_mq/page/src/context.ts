/** What every view knows: the store and ring it shows, and what its user may do. */

import { createContext, useContext } from "react";

import { get, post, ringPath, url } from "./api";
import { usePoll, type Polled } from "./poll";
import { href } from "./route";
import type { Me } from "./types";
import type { Can } from "./api";

export type Here = {
  conn: string;
  ring: string;
  me: Me;
  /** Tell what was done, for eyes and for screen readers. */
  tell: (text: string, link?: { href: string; text: string }) => void;
};

export const HereContext = createContext<Here | null>(null);

export type Query = Record<string, string | number | boolean | null | undefined>;

/** What Airflow has to grant. */
const NEEDED: Record<Can, (conn: string) => string> = {
  read: () => "see plugins",
  peek: (conn) => `read the connection ${conn}`,
  write: (conn) => `edit the connection ${conn}`,
  trigger: () => "trigger the DAG that executes it",
};

export function useHere() {
  const here = useContext(HereContext)!;
  const path = (what: string) => `${ringPath(here.conn, here.ring)}/${what}`;
  return {
    ...here,
    get: <T>(what: string, query?: Query, signal?: AbortSignal) => get<T>(path(what), query, signal),
    post: <T>(what: string, body?: unknown, signal?: AbortSignal) => post<T>(path(what), body, signal),
    url: (what: string, query?: Query) => url(path(what), query),
    href: (view: string, of: Record<string, string | null | undefined> = {}) =>
      href(view, { conn: here.conn, ring: here.ring, ...of }),
    /** Why the user may not do this, or null. */
    refusal: (what: Can) =>
      here.me.can[what] ? null : `${here.me.user} may not: it needs the right to ${NEEDED[what](here.conn)}.`,
  };
}

/** One answer of the ring, kept fresh. */
export function useRing<T>(what: string, query: Query = {}, live = true): Polled<T> {
  const here = useHere();
  const key = JSON.stringify([here.conn, here.ring, what, query]);
  return usePoll<T>(key, (signal) => here.get<T>(what, query, signal), live ? here.me.refresh_seconds : null);
}
