/**
 * A colour for each queue, computed from its name: the same at every visit, on every tab and in every picture. Queues
 * have cool hues; warm ones and green are states, and blue is what can be pressed.
 */

const HUES = [165, 190, 213, 235, 275, 295, 315, 335, 353];
/** Lightness on a light and on a dark ground. */
const LEVELS: [number, number][] = [
  [0.65, 0.86],
  [0.51, 0.71],
  [0.37, 0.57],
];

/** FNV-1a, from a start that keeps the documentation's example names apart. */
function hash(text: string): number {
  let value = 0x811c9f16;
  for (const byte of new TextEncoder().encode(text)) value = Math.imul(value ^ byte, 0x01000193) >>> 0;
  return value;
}

/** Order in a stack: by name, the rest at the end. */
export function byName(a: string | null, b: string | null): number {
  if (a === null || b === null) return Number(a === null) - Number(b === null);
  return a < b ? -1 : Number(a > b);
}

export function colour(origin: string | null): string {
  if (origin === null) return "var(--rest)";
  const number = hash(origin);
  const hue = HUES[(number >>> 8) % HUES.length];
  const [light, dark] = LEVELS[(number >>> 20) % LEVELS.length]!;
  return `light-dark(oklch(${light} 0.11 ${hue}), oklch(${dark} 0.1 ${hue}))`;
}
