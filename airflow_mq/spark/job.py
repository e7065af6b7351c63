"""Script that `spark-submit` runs: process one part of a block, and report the outcomes.

    spark-submit .../airflow_mq/spark/job.py --ring default --routes '{"processors": [...]}'
        --processors orders,mail --part 0 --parts 2 [--lease SECONDS] [--exchange PATH]

The environment holds the store's address and the block's token: `AIRFLOW_MQ_STORE` and `AIRFLOW_MQ_BLOCK`. With
`--exchange` it holds neither: messages and outcomes travel through that folder. `TRACEPARENT` and `AIRFLOW_MQ_TRACES`
continue a trace (`airflow_mq.observe.traces`).

The job renews the block's lease while it runs. Exit codes: 0 every message was tried, whatever its outcome; 75 the
block ended meanwhile, so the job stopped; 78 a processor did not load; 2 invalid arguments; 1 the job itself failed.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    # Python searches the script's folder first, where our modules would hide others of the same name.
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [place for place in sys.path if os.path.abspath(place or ".") != here]
    from airflow_mq.spark.program import run_and_exit

    run_and_exit()
