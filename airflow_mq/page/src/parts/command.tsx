/** Commands and code with a button that copies them. */

import { useEffect, useState } from "react";

import type { Remedy as Suggested } from "../types";

export function Command({ children: text }: { children: string }) {
  const [result, setResult] = useState<"" | "Copied" | "Select and copy it yourself">("");
  useEffect(() => {
    if (!result) return;
    const timer = setTimeout(() => setResult(""), 3000);
    return () => clearTimeout(timer);
  }, [result]);
  return (
    <div className="command">
      <pre className="code" tabIndex={0}>
        <code>{text}</code>
      </pre>
      <button type="button" aria-label={`Copy ${text}`} onClick={() => void copy(text).then((done) => setResult(done ? "Copied" : "Select and copy it yourself"))}>
        {result === "Copied" ? "✓ Copied" : "Copy"}
      </button>
      <span className="unseen" role="status">
        {result}
      </span>
    </div>
  );
}

/** A suggestion of the server, with its command if it has one. */
export function Remedy({ text, command }: Suggested) {
  return (
    <>
      {text && <span className="sentence">{text}</span>}
      {command && <Command>{command}</Command>}
    </>
  );
}

/** Browsers offer the clipboard over HTTPS only; otherwise a selected text field is copied. */
async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const focused = document.activeElement as HTMLElement | null;
    const field = Object.assign(document.createElement("textarea"), { value: text, className: "amq-copied" });
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    focused?.focus();
    return done;
  }
}
