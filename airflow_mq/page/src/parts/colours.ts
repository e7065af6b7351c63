/** A colour for each queue, the same in all pictures while the page is open. */

const COLOURS = 16;
const given = new Map<string, number>();

/** Position in a stack: the same queue at the same place, the rest at the end. */
export function place(origin: string | null): number {
  if (origin === null) return Number.MAX_SAFE_INTEGER;
  if (!given.has(origin)) given.set(origin, given.size);
  return given.get(origin)!;
}

export const colour = (origin: string | null) => (origin === null ? "var(--rest)" : `var(--colour-${place(origin) % COLOURS})`);
