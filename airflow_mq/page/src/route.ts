/** Which view is shown, and of what: in the address after #, so that it can be sent to a colleague. */

import { useSyncExternalStore } from "react";

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
  return { view: view || "ring", of: Object.fromEntries(new URLSearchParams(query)) };
}

export const useRoute = (): Route => parse(useSyncExternalStore(watch, read));

/** A word of the address, say what is searched for: whoever is sent the address sees the same. */
export function useWord(name: string, otherwise = ""): [string, (value: string) => void] {
  const { view, of } = useRoute();
  return [of[name] ?? otherwise, (value) => go(view, { ...of, [name]: value === otherwise ? null : value }, true)];
}

/** A whole address: with a <base>, one that only has a # would lead elsewhere. */
export function href(view: string, of: Record<string, string | null | undefined> = {}): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(of)) if (value) query.set(name, value);
  return `${location.pathname}${location.search}#/${view}${query.size ? `?${query}` : ""}`;
}

export function go(view: string, of: Record<string, string | null | undefined> = {}, replace = false): void {
  history[replace ? "replaceState" : "pushState"](history.state, "", href(view, of));
  dispatchEvent(new HashChangeEvent("hashchange"));
}
