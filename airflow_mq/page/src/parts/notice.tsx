/** Notices: errors, outdated data, empty lists, and buttons with permissions. */

import { useEffect, useState, type ReactNode } from "react";

import { ApiError, below } from "../api";
import type { Polled } from "../poll";
import { span } from "../words";

export function Notice({ kind, children }: { kind: "bad" | "warn" | "good" | "note"; children: ReactNode }) {
  return (
    <div className={`notice ${kind}`} role={{ bad: "alert", good: "status", warn: undefined, note: undefined }[kind]}>
      {children}
    </div>
  );
}

export const Failure = ({ error }: { error: Error }) => <Notice kind="bad"><Reason error={error} /></Notice>;

function Reason({ error }: { error: Error }) {
  const signIn = `${below("api/v2/auth/login")}?${new URLSearchParams({ next: location.href })}`;
  return (
    <>
      {error.message} {error instanceof ApiError && error.status === 401 && <a href={signIn}>Sign in</a>}
    </>
  );
}

/** An empty state: what would be shown here, and how to get it. */
export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

/** Loaded data, or a loading state, or an error; with a notice if the data is outdated. */
export function Loaded<T>({ from, children }: { from: Polled<T>; children: (data: T) => ReactNode }) {
  if (from.data === null)
    return from.error ? (
      <Failure error={from.error} />
    ) : (
      <p className="muted" role="status">
        Loading…
      </p>
    );
  return (
    <>
      {from.stale && <Stale from={from} />}
      {children(from.data)}
    </>
  );
}

function Stale({ from }: { from: Polled<unknown> }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return (
    <div className="notice warn stale" role="status">
      <strong>Stale.</strong> {from.error && <Reason error={from.error} />} This data is from {span((now - (from.at ?? now)) / 1000)} ago.{" "}
      <button onClick={from.refresh}>Retry</button>
    </div>
  );
}

/** A button; if the user may not use it, its label gives the reason. */
export function Action(props: {
  children: ReactNode;
  refusal?: string | null;
  onClick: () => void;
  danger?: boolean;
  primary?: boolean;
  label?: string;
  busy?: boolean;
  pressed?: boolean;
  id?: string;
}) {
  const barred = Boolean(props.refusal);
  return (
    <button
      type="button"
      id={props.id}
      aria-pressed={props.pressed}
      className={props.primary ? "primary" : props.danger ? "danger" : undefined}
      aria-disabled={barred || props.busy || undefined}
      aria-label={barred && props.refusal ? `${props.label ?? String(props.children)}: ${props.refusal}` : props.label}
      title={props.refusal ?? undefined}
      onClick={() => !barred && !props.busy && props.onClick()}
    >
      {props.children}
    </button>
  );
}
