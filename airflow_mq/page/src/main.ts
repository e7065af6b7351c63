/** What Airflow's UI loads: it brings React along, and expects the component under this name. */

import { Page } from "./page";
import { dress } from "./style";

dress();
Object.assign(globalThis, { AirflowPlugin: Page });
