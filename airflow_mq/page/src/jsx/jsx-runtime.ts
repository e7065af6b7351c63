/**
 * React's runtime for JSX, which shows every text by `visible`: an origin is shown in names, links, sentences of the
 * server, labels and pictures, and none of these places can forget it. Payloads (`pre`) stay as they are.
 */

import { Fragment, jsx as plain, jsxs as plains, type JSX } from "react/jsx-runtime";

import { visible } from "../words";

export { Fragment, type JSX };

type Create = typeof plain;
type Props = Record<string, unknown>;

/** Attributes that are read out or shown. */
const SHOWN = ["aria-label", "title", "placeholder"];

export const jsx: Create = (type, props, key) => plain(type, shown(type, props as Props), key);
export const jsxs: Create = (type, props, key) => plains(type, shown(type, props as Props), key);

/** Components hand their texts on to elements, and those are shown. */
function shown(type: unknown, props: Props): Props {
  if ((typeof type !== "string" && type !== Fragment) || type === "pre") return props;
  const found = { ...props };
  if ("children" in found) found.children = text(found.children);
  for (const name of SHOWN) if (name in found) found[name] = text(found[name]);
  return found;
}

function text(value: unknown): unknown {
  if (typeof value === "string") return visible(value);
  return Array.isArray(value) ? value.map(text) : value;
}
