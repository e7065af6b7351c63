/** The same page without Airflow's UI around it, at /airflow-mq/. */

import { createRoot } from "react-dom/client";

import { Page } from "./page";
import { dress } from "./style";

const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");

/** As Airflow's UI has it, if it was asked; else as the system has it. */
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
