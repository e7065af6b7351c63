/** Messages of a page. A payload is shown as text, never as markup. */

import { useEffect, useRef, useState } from "react";

import { COMMANDS } from "../commands";
import { useHere, useRing } from "../context";
import { Choice } from "../parts/bars";
import { Command } from "../parts/command";
import { Loaded } from "../parts/notice";
import type { Place } from "./queue";
import type { Message, Payload } from "../types";
import type { Paged } from "../api";
import { bytes, many, weight, where } from "../words";

type Form = "text" | "json" | "hex";

const FORMS: Record<Form, string> = { text: "Text", json: "JSON", hex: "Hex" };

export function Peek({ origin, priority, page, onClose }: { origin: string; priority: string; page: Place; onClose: () => void }) {
  const messages = useRing<Paged<Message>>("messages", { origin, priority, page: page === "first" ? null : page, limit: 20 }, false);
  const name = page === "first" ? "The first messages" : `Messages of page ${page}`;
  // It opens below the list of pages, possibly out of view.
  const card = useRef<HTMLElement>(null);
  useEffect(() => {
    card.current?.focus();
  }, []);
  const [form, setForm] = useState<Form>("text");
  return (
    <section className="card" aria-label={name} ref={card} tabIndex={-1}>
      <div className="row between">
        <h3>{name}</h3>
        <div className="row">
          <Choice label="Show payloads as" value={form} of={FORMS} onChange={setForm} />
          <button type="button" onClick={onClose}>
            Close
          </button>
        </div>
      </div>
      <Loaded from={messages}>
        {(data) =>
          data.rows.length === 0 ? (
            <p className="muted">Nothing is left here.</p>
          ) : (
            <>
              {data.rows.map((row) => (
                <MessageCard key={row.id} row={row} form={form} />
              ))}
              {data.rows.length >= 20 && <p className="muted">These are the first {data.rows.length}.</p>}
            </>
          )
        }
      </Loaded>
    </section>
  );
}

function MessageCard({ row, form }: { row: Message; form: Form }) {
  const here = useHere();
  const facts = [
    row.state,
    bytes(row.size),
    row.weight && `weighs ${weight(row.weight)}`,
    row.attempts > 0 && `tried ${many(row.attempts, "time")}`,
  ].filter(Boolean);
  const headers = Object.entries(row.headers ?? {});
  return (
    <article className="message">
      <h4>{where(row.address)}</h4>
      <p className="muted">{facts.join(" · ")}</p>
      {headers.length > 0 && (
        <p className="muted">
          Headers:{" "}
          {headers.map(([name, value]) => (
            <code key={name}>
              {name}: {value}{" "}
            </code>
          ))}
        </p>
      )}
      {row.payload.external ? (
        <>
          <p className="muted">Its payload is stored outside the pages. To read it, run:</p>
          <Command>{COMMANDS.payload(row.payload.external, here)}</Command>
        </>
      ) : (
        <pre className="code" tabIndex={0} aria-label={`Payload of ${where(row.address)}`}>
          {shown(row.payload, form)}
        </pre>
      )}
      {row.payload.truncated && !row.payload.external && (
        <p className="muted">
          The first {bytes(row.payload.shown)} of {bytes(row.size)}.
        </p>
      )}
    </article>
  );
}

export function shown(payload: Payload, form: Form): string {
  if (form === "hex") return dump(payload.hex);
  if (form === "json" && payload.json !== null && payload.json !== undefined) return JSON.stringify(payload.json, null, 2);
  if (form === "json") return payload.truncated ? "Too long to be shown as JSON." : "Not JSON, or with numbers that a browser rounds: see Text.";
  return payload.text ?? "Not UTF-8 text; choose hex.";
}

/** A hex dump: sixteen bytes a line, printable characters beside them. */
function dump(hex: string): string {
  const octets = hex.replaceAll(/\s/g, "").match(/../g) ?? [];
  const lines: string[] = [];
  for (let at = 0; at < octets.length; at += 16) {
    const row = octets.slice(at, at + 16);
    const letters = row.map((one) => {
      const code = Number.parseInt(one, 16);
      return code >= 32 && code < 127 ? String.fromCharCode(code) : "·";
    });
    lines.push(`${at.toString(16).padStart(6, "0")}  ${row.join(" ").padEnd(47)}  ${letters.join("")}`);
  }
  return lines.join("\n");
}
