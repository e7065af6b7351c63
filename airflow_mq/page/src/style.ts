/** The style, put in without a <style> element, so that a strict content policy has nothing against it. */

import css from "./style.css";

export function dress(): void {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(css);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
}
