"""The demo: the orders example from beginning to end, on nothing but this machine.

    make demo        or        python -m airflow_mq.demo [--json FILE] [--loud N] [--stay | --leave]

A store on SQLite, Spark inside the tasks (`local[*]`), and a real Airflow with its UI on loopback, on ports that happen
to be free; all of it in a folder of its own. `stage` makes the folder and the Airflow, `story` runs the example and
checks it, `telling` is what one sees in the terminal.
"""

from __future__ import annotations
