/** A colour for each queue, the same in every picture while the page is open. */

const COLOURS = 10;
const given = new Map<string, number>();

export function colour(origin: string | null): string {
  if (origin === null) return "var(--rest)";
  if (!given.has(origin)) given.set(origin, given.size % COLOURS);
  return `var(--colour-${given.get(origin)})`;
}
