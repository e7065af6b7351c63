/** Entry point inside Airflow's UI, which provides React and expects the component under this name. */

import { Page } from "./page";
import { dress } from "./style";

dress();
Object.assign(globalThis, { AirflowPlugin: Page });
