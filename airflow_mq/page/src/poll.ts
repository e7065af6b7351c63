/** Polling: slower while the server does not answer, paused while the page is hidden. */

import { useCallback, useEffect, useRef, useState } from "react";

import { ApiError } from "./api";

const SLOWEST = 60_000;
/** Seconds, doubled by each failure, before what is read once is read again. */
const RETRY = 1;
/** The pause after a reading, at least, as a multiple of its duration: a slow answer does not keep the server busy. */
const REST = 4;

/** The typed text, once typing pauses. */
export function useSettled(value: string, millis = 250): string {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), millis);
    return () => clearTimeout(timer);
  }, [value, millis]);
  return settled;
}

/** The previous value while a new one for the same key is loading. */
export function useLast<T>(value: T | null, key = ""): T | null {
  const [last, setLast] = useState({ key, value });
  if (value !== null && (value !== last.value || key !== last.key)) setLast({ key, value });
  return value ?? (last.key === key ? last.value : null);
}

export type Polled<T> = {
  data: T | null;
  error: Error | null;
  /** The data is outdated: the last request failed. */
  stale: boolean;
  /** Time of the last response. */
  at: number | null;
  refresh: () => void;
};

type State<T> = { key: string; data: T | null; error: Error | null; at: number | null };

/**
 * @param key identifies the request: when it changes, the old response is dropped
 * @param seconds between two readings; null to read once
 * @param retries what is read once is read again after a failure, until there is a response
 */
export function usePoll<T>(key: string, load: (signal: AbortSignal) => Promise<T>, seconds: number | null, retries = true): Polled<T> {
  const [state, setState] = useState<State<T>>({ key, data: null, error: null, at: null });
  const loader = useRef(load);
  loader.current = load;
  const again = useRef(() => {});

  useEffect(() => {
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let failures = 0;
    let asking = false;
    let changed = false;
    let answered = false;

    async function ask() {
      clearTimeout(timer);
      if (asking || stop.signal.aborted) return;
      asking = true;
      changed = false;
      const began = performance.now();
      try {
        const data = await loader.current(stop.signal);
        failures = 0;
        answered = true;
        if (!stop.signal.aborted) setState({ key, data, error: null, at: Date.now() });
      } catch (error) {
        failures += 1;
        if (!stop.signal.aborted)
          setState((old) => {
            const kept = old.key === key ? old : { data: null, at: null };
            return { key, data: kept.data, at: kept.at, error: error as Error };
          });
        // A rejected request stays rejected until the request changes.
        if (error instanceof ApiError && [400, 401, 403, 404, 422].includes(error.status)) {
          failures = 10;
          answered = true;
        }
      }
      asking = false;
      const took = performance.now() - began;
      // The response may be older than the user's action.
      if (changed) return void ask();
      const pause = seconds ?? (answered || !retries ? null : RETRY);
      if (pause !== null && !stop.signal.aborted && !document.hidden)
        timer = setTimeout(ask, Math.max(REST * took, Math.min(pause * 1000 * 2 ** failures, Math.max(SLOWEST, pause * 1000))));
    }

    const seen = () => {
      if (!document.hidden) void ask();
    };
    again.current = () => {
      changed = asking;
      answered = false;
      void ask();
    };
    document.addEventListener("visibilitychange", seen);
    void ask();
    return () => {
      stop.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [key, seconds]);

  const refresh = useCallback(() => again.current(), []);
  const mine = state.key === key ? state : { data: null, error: null, at: null };
  return { data: mine.data, error: mine.error, at: mine.at, stale: mine.error !== null && mine.data !== null, refresh };
}
