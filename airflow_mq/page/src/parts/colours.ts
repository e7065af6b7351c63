/** A colour for each queue: computed from its name, so the same at every visit and in every picture. */

const COLOURS = 16;

/** FNV-1a: spreads similar names. */
function hash(text: string): number {
  let value = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(text)) value = Math.imul(value ^ byte, 0x01000193) >>> 0;
  return value;
}

/** Order in a stack: by name, the rest at the end. */
export function byName(a: string | null, b: string | null): number {
  if (a === null || b === null) return Number(a === null) - Number(b === null);
  return a < b ? -1 : Number(a > b);
}

export const colour = (origin: string | null) => (origin === null ? "var(--rest)" : `var(--colour-${hash(origin) % COLOURS})`);
