/** Entry point of the page without Airflow's UI, at /airflow-mq/. */

import { createRoot } from "react-dom/client";

import { Page } from "./page";
import { dress } from "./style";

const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");

/** Use the colour mode chosen in Airflow's UI, else the system's. */
function light(): void {
  const chosen = localStorage.getItem("theme");
  const scheme = chosen === "dark" || chosen === "light" ? chosen : dark.matches ? "dark" : "light";
  root.style.colorScheme = scheme;
}

dress();
light();
dark.addEventListener("change", light);
addEventListener("storage", light);
root.classList.add("amq-alone");
createRoot(document.getElementById("root")!).render(<Page />);
