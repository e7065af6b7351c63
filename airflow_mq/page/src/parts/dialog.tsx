/** Confirmation dialog. The browser's own dialog keeps the focus inside and closes with Escape. */

import { useEffect, useId, useRef, useState, type ReactNode } from "react";

import { Failure } from "./notice";

type Props = {
  title: string;
  confirm: string;
  danger?: boolean;
  /** Confirmation is not possible yet. */
  barred?: boolean;
  children: ReactNode;
  onConfirm: () => Promise<void>;
  onClose: () => void;
};

export function Dialog({ title, confirm, danger, barred, children, onConfirm, onClose }: Props) {
  const element = useRef<HTMLDialogElement>(null);
  const [busy, setBusy] = useState(false);
  const [wrong, setWrong] = useState<Error | null>(null);
  const name = useId();
  useEffect(() => element.current?.showModal(), []);
  function close() {
    // The browser's own close returns the focus.
    element.current?.close();
    // Its event comes later. A key pressed before it would open a dialog that the event closes.
    element.current?.dispatchEvent(new Event("close"));
  }

  async function submit() {
    setBusy(true);
    setWrong(null);
    try {
      await onConfirm();
      close();
    } catch (error) {
      setWrong(error as Error);
      setBusy(false);
    }
  }

  return (
    <dialog
      ref={element}
      aria-labelledby={name}
      onClose={onClose}
      // Until the response is there, the dialog stays: it shows an error.
      onKeyDown={(event) => busy && event.key === "Escape" && event.preventDefault()}
      onCancel={(event) => {
        event.preventDefault();
        if (!busy) close();
      }}
    >
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (!busy && !barred) void submit();
        }}
      >
        <h2 id={name}>{title}</h2>
        {children}
        {wrong && <Failure error={wrong} />}
        <div className="row end">
          <button type="button" aria-disabled={busy} onClick={() => !busy && close()}>
            Cancel
          </button>
          <button type="submit" className={danger ? "danger" : "primary"} aria-disabled={busy || barred}>
            {busy ? "Working…" : confirm}
          </button>
        </div>
      </form>
    </dialog>
  );
}

export function Field(props: {
  label: string;
  hint?: string;
  value: string;
  onChange: (value: string) => void;
  required?: boolean;
  type?: string;
  placeholder?: string;
  /** Why the value is invalid. */
  error?: string;
}) {
  const name = useId();
  return (
    <label className="field">
      <span>{props.label}</span>
      <input
        type={props.type ?? "text"}
        value={props.value}
        required={props.required}
        placeholder={props.placeholder}
        aria-invalid={props.error ? true : undefined}
        aria-describedby={props.error && name}
        onChange={(event) => props.onChange(event.target.value)}
      />
      {props.error && (
        <small className="wrong" id={name}>
          {props.error}
        </small>
      )}
      {props.hint && <small className="muted">{props.hint}</small>}
    </label>
  );
}
