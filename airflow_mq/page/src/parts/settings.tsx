/** Button and dialog to change the settings of an origin, as the command `queue set` does. */

import { useEffect, useState } from "react";

import { ApiError } from "../api";
import { useHere, useRing } from "../context";
import type { SettingTexts } from "../types";
import { Dialog, Field } from "./dialog";
import { Action, Loaded } from "./notice";

type Name = keyof SettingTexts;

/** Settings with their labels and hints. */
const FIELDS: [Name, string, string][] = [
  ["share", "Share", "With 2, it gets twice as much as an origin with 1."],
  ["quota", "Quota", "Bytes that it may store, for example 5GiB. Further messages are refused. If empty, unlimited."],
  ["least", "Least of each block", "Time and size, for example 10s/5MB."],
  ["most", "Most of each block", "For example 5m/500MB."],
  ["rate", "Rate", "Time that it may use, for example 2h/day. If empty, unlimited."],
  ["burst", "Burst", "Time that it may save up, for example 30m. If empty, one hour's rate."],
  ["rate_bytes", "Rate in bytes", "Bytes that it may use, for example 50GiB/day. If empty, unlimited."],
  ["burst_bytes", "Burst in bytes", "Bytes that it may save up, for example 5GiB. If empty, one hour's rate."],
];

type Props = { origin: string; paths: boolean; onDone: () => void };

export function SettingsButton(props: Props) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <Action refusal={useHere().refusal("write")} onClick={() => setOpen(true)}>
        Settings
      </Action>
      {open && <SettingsForm {...props} onClose={() => setOpen(false)} />}
    </>
  );
}

function SettingsForm({ origin, paths, onDone, onClose }: Props & { onClose: () => void }) {
  const here = useHere();
  const stored = useRing<SettingTexts>("settings", { origin }, false);
  const [typed, setTyped] = useState<Partial<Record<Name, string>>>({});
  const [wrong, setWrong] = useState<Record<string, string>>({});
  const before = (name: Name) => String(stored.data?.[name] ?? "");

  useEffect(() => document.querySelector<HTMLElement>(".amq dialog [aria-invalid]")?.focus(), [wrong]);

  async function change() {
    const changed = Object.entries(typed).filter(([name, text]) => text.trim() !== before(name as Name));
    try {
      await here.post("settings", { origin, ...Object.fromEntries(changed.map(([name, text]) => [name, text.trim() || null])) });
    } catch (error) {
      const fields = error instanceof ApiError ? error.fields : {};
      setWrong(fields);
      throw Object.keys(fields).length ? new Error("Nothing was changed. Correct the marked settings.") : error;
    }
    here.announce(`The settings of ${origin} apply from the next block on.`);
    onDone();
  }

  return (
    <Dialog title={`Settings of ${origin}`} confirm="Change" barred={!stored.data} onConfirm={change} onClose={onClose}>
      {paths && <p>In this ring, they are those of {origin} and all below it together.</p>}
      <Loaded from={stored}>
        {() => (
          <div className="fields">
            {FIELDS.map(([name, label, hint]) => (
              <Field
                key={name}
                label={label}
                hint={hint}
                value={typed[name] ?? before(name)}
                error={wrong[name]}
                onChange={(text) => setTyped({ ...typed, [name]: text })}
              />
            ))}
          </div>
        )}
      </Loaded>
    </Dialog>
  );
}
