/** Buttons and dialogs to pause and resume an origin, or all below a path. */

import { useState } from "react";

import { useHere } from "../context";
import type { Pause } from "../types";
import { clock } from "../words";
import { Dialog, Field } from "./dialog";
import { Action } from "./notice";

export const paused = (pause: Pause) =>
  `${pause.actor ? `by ${pause.actor}` : ""}${pause.until ? ` until ${clock(pause.until)}` : ""}: ${pause.reason || "no reason given"}`.trim();

type Buttons = { origin: string; pause: Pause | null; failed?: boolean; paths: boolean; onDone: () => void };

export function PauseButton({ origin, pause, failed = false, paths, onDone }: Buttons) {
  const here = useHere();
  // The dialog of the moment of the click: the state of the origin may change while it is open.
  const [open, setOpen] = useState<{ why: string | null } | null>(null);
  const close = () => setOpen(null);
  const refusal = here.refusal("write");
  return (
    <>
      {failed && (
        <Action refusal={refusal} onClick={() => setOpen({ why: "Its last attempt failed." })}>
          Retry now
        </Action>
      )}
      <Action refusal={refusal} onClick={() => setOpen({ why: pause && `It is paused ${paused(pause)}.` })}>
        {pause ? "Resume" : "Pause"}
      </Action>
      {open &&
        (open.why ? (
          <Resume origin={origin} why={open.why} onDone={onDone} onClose={close} />
        ) : (
          <PauseForm origin={origin} paths={paths} onDone={onDone} onClose={close} />
        ))}
    </>
  );
}

type Form = { origin: string; onDone: () => void; onClose: () => void };

function PauseForm({ origin, paths, onDone, onClose }: Form & { paths: boolean }) {
  const here = useHere();
  const [reason, setReason] = useState("");
  const [until, setUntil] = useState("");
  const [all, setAll] = useState(false);
  async function pause() {
    await here.post("pause", {
      origin,
      reason: reason.trim(),
      ...(until && { until: new Date(until).toISOString() }),
      ...(all && { below: true }),
    });
    here.announce(`${origin} is paused. Messages are still accepted.`);
    onDone();
  }
  return (
    <Dialog title={`Pause ${origin}`} confirm="Pause" onConfirm={pause} onClose={onClose}>
      <p>A paused queue accepts messages. No block takes any until it is resumed.</p>
      <Field label="Reason" value={reason} onChange={setReason} required hint="Shown wherever the queue is explained." />
      <Field label="Until" type="datetime-local" value={until} onChange={setUntil} hint="In your time zone. If empty, the pause has no end." />
      {paths && (
        <label className="row">
          <input type="checkbox" checked={all} onChange={(event) => setAll(event.target.checked)} /> Also everything below {origin}/
        </label>
      )}
    </Dialog>
  );
}

function Resume({ origin, why, onDone, onClose }: Form & { why: string }) {
  const here = useHere();
  async function resume() {
    await here.post("resume", { origin });
    here.announce(`${origin} is resumed.`);
    onDone();
  }
  return (
    <Dialog title={`Resume ${origin}`} confirm="Resume" onConfirm={resume} onClose={onClose}>
      <p>{why} The next block can take its messages.</p>
    </Dialog>
  );
}
