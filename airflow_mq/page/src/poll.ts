/** Asking again and again: slower while nothing answers, not at all while nobody looks. */

import { useCallback, useEffect, useRef, useState } from "react";

import { ApiError } from "./api";

const SLOWEST = 60_000;

/** What was typed, once nothing more is typed for a moment. */
export function useSettled(value: string, millis = 250): string {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), millis);
    return () => clearTimeout(timer);
  }, [value, millis]);
  return settled;
}

/** While a new answer is awaited, the last one stays. */
export function useLast<T>(value: T | null): T | null {
  const [last, setLast] = useState(value);
  if (value !== null && value !== last) setLast(value);
  return value ?? last;
}

export type Polled<T> = {
  data: T | null;
  error: Error | null;
  /** What is shown is not what is: the last question was not answered. */
  stale: boolean;
  /** When it was answered last. */
  at: number | null;
  refresh: () => void;
};

type State<T> = { key: string; data: T | null; error: Error | null; at: number | null };

/** @param key what is asked for: when it changes, the old answer is forgotten */
export function usePoll<T>(key: string, load: (signal: AbortSignal) => Promise<T>, seconds: number | null): Polled<T> {
  const [state, setState] = useState<State<T>>({ key, data: null, error: null, at: null });
  const loader = useRef(load);
  loader.current = load;
  const again = useRef(() => {});

  useEffect(() => {
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let failures = 0;
    let asking = false;

    async function ask() {
      clearTimeout(timer);
      if (asking || stop.signal.aborted) return;
      asking = true;
      try {
        const data = await loader.current(stop.signal);
        failures = 0;
        if (!stop.signal.aborted) setState({ key, data, error: null, at: Date.now() });
      } catch (error) {
        failures += 1;
        if (!stop.signal.aborted)
          setState((old) => {
            const kept = old.key === key ? old : { data: null, at: null };
            return { key, data: kept.data, at: kept.at, error: error as Error };
          });
        // What is refused stays refused until something else is asked for.
        if (error instanceof ApiError && [400, 401, 403, 404, 422].includes(error.status)) failures = 10;
      }
      asking = false;
      if (seconds !== null && !stop.signal.aborted && !document.hidden)
        timer = setTimeout(ask, Math.min(seconds * 1000 * 2 ** failures, Math.max(SLOWEST, seconds * 1000)));
    }

    const seen = () => {
      if (!document.hidden) void ask();
    };
    again.current = () => void ask();
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
