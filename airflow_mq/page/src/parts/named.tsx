/** The name of a queue, with its colour, as a link to its page. */

import { useHere } from "../context";
import { colour } from "./colours";

export function Named({ origin, priority }: { origin: string | null; priority?: string | null }) {
  const here = useHere();
  return (
    <span className="named">
      <i className="dot" style={{ background: colour(origin) }} />
      <span>
        {origin === null ? "other queues" : <a href={here.href("queue", { origin, priority })}>{origin}</a>}
        {priority === "high" && <span className="badge">high priority</span>}
      </span>
    </span>
  );
}
