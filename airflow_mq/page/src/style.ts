/** The style sheet, adopted without a <style> element: a strict content security policy permits that. */

import css from "./style.css";

export function dress(): void {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(css);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
}
