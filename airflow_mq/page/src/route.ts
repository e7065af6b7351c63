/** The view and its parameters, in the URL after #, so that a link shows the same view. */

import { useSyncExternalStore, type MouseEvent } from "react";

export type Route = { view: string; of: Record<string, string> };

const read = () => location.hash;

function watch(changed: () => void): () => void {
  addEventListener("hashchange", changed);
  addEventListener("popstate", changed);
  return () => {
    removeEventListener("hashchange", changed);
    removeEventListener("popstate", changed);
  };
}

export function parse(hash: string): Route {
  const [view = "", query = ""] = hash.replace(/^#\/?/, "").split("?");
  return { view: view || "queues", of: Object.fromEntries(new URLSearchParams(query)) };
}

export const useRoute = (): Route => parse(useSyncExternalStore(watch, read));

/** A parameter of the URL, for example the search text: a link contains it. */
export function useWord(name: string, otherwise = ""): [string, (value: string) => void] {
  const { view, of } = useRoute();
  return [of[name] ?? otherwise, (value) => go(view, { ...of, [name]: value === otherwise ? null : value }, true)];
}

/** A full URL: because of <base>, a bare # would lead to another page. */
export function href(view: string, of: Record<string, string | null | undefined> = {}): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(of)) if (value) query.set(name, value);
  return `${location.pathname}${location.search}#/${view}${query.size ? `?${query}` : ""}`;
}

export const go = (view: string, of: Record<string, string | null | undefined> = {}, replace = false) => move(href(view, of), replace);

function move(url: string, replace: boolean): void {
  history[replace ? "replaceState" : "pushState"](history.state, "", url);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

/** Follow a link within the page here: after a navigation by the browser, Airflow mounts the page anew, and the focus is lost. */
export function follow(event: MouseEvent): void {
  const link = (event.target as Element).closest("a")?.getAttribute("href");
  const isPlain = event.button === 0 && !(event.altKey || event.ctrlKey || event.metaKey || event.shiftKey);
  if (!isPlain || !link?.startsWith(`${location.pathname}${location.search}#`)) return;
  event.preventDefault();
  move(link, false);
}
