/** Integrity check of a ring, and exports. */

import { useState } from "react";

import { LONGEST_CHECK } from "../api";
import { COMMANDS } from "../commands";
import { useHere } from "../context";
import { Command } from "../parts/command";
import { Sliced } from "../parts/listing";
import { Action, Failure, Notice } from "../parts/notice";
import type { Checked } from "../types";
import { count, many } from "../words";

export function CheckView() {
  return (
    <>
      <Integrity />
      <Exports />
    </>
  );
}

function Integrity() {
  const here = useHere();
  const [busy, setBusy] = useState(false);
  const [found, setFound] = useState<Checked | Error | null>(null);
  async function check() {
    setBusy(true);
    setFound(null);
    try {
      setFound(await here.post<Checked>("check", {}, new AbortController().signal, LONGEST_CHECK));
    } catch (error) {
      setFound(error as Error);
    }
    setBusy(false);
  }
  return (
    <section aria-label="Integrity">
      <h2>Integrity</h2>
      <p>Reads all stored data of this ring and checks every invariant. On a large store, this takes minutes.</p>
      <Action primary refusal={here.refusal("write")} busy={busy} onClick={() => void check()}>
        {busy ? "Checking…" : "Check now"}
      </Action>
      {found && <Found found={found} />}
    </section>
  );
}

function Found({ found }: { found: Checked | Error }) {
  const here = useHere();
  if (found instanceof Error) return <Failure error={found} />;
  if (found.violations.length === 0) return <Notice kind="good">No violations found in {found.took_seconds.toFixed(1)} s.</Notice>;
  return (
    <>
      <Notice kind="bad">
        <strong>{many(found.count, "violation")} found.</strong> Copy the store before you do anything else.
        <p className="sentence">Then read the disaster recovery guide. The same check in a terminal, which lists all violations:</p>
      </Notice>
      <Command>{COMMANDS.check(here)}</Command>
      <Sliced rows={found.violations} label="violations">
        {({ rows }) => (
          <ul>
            {rows.map((one, index) => (
              <li key={index}>
                <strong>{one.where}</strong>: {one.what}
              </li>
            ))}
          </ul>
        )}
      </Sliced>
      {found.count > found.violations.length && <p>These are the first {count(found.violations.length)} of {count(found.count)}.</p>}
    </>
  );
}

function Exports() {
  const here = useHere();
  return (
    <section aria-label="Exports">
      <h2>Exports</h2>
      <p>CSV files that are safe to open in a spreadsheet.</p>
      <p className="row">
        {["queues", "set-aside", "events", "usage"].map((name) => (
          <a key={name} className="button" href={here.url(`export/${name}.csv`)} download>
            {name}.csv
          </a>
        ))}
      </p>
    </section>
  );
}
