"""Demo: the orders example from beginning to end, on this machine alone.

    make demo        or        python -m airflow_mq.demo [--json FILE] [--loud N] [--stay | --leave]

It uses a store on SQLite, Spark inside the tasks (`local[*]`), and a real Airflow with its UI on loopback, on free
ports. All of it is in a temporary folder. `stage` makes the folder and the Airflow, `story` runs the example and checks
it, `progress` draws the terminal.
"""

from __future__ import annotations
