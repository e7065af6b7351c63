"""Run seeds until one violates an invariant; print which, as JSON. Run in a folder with a changed copy of the package."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import airflow_mq
from airflow_mq.engine.rules.errors import MessageQueueError

from ..busy import run_busy
from ..crowd import run_crowd
from ..messages import Violation
from ..places import open_stores
from ..run import run_budgeted, run_seed
from ..world import Stores


def run_ring(seed: int, stores: Stores, store: str) -> BaseException | None:
    """Run a ring with all actors."""
    return run_seed(seed, stores, store).failure


def run_with_budgets(seed: int, stores: Stores, store: str) -> BaseException | None:
    """Run a ring with budgets over time."""
    return run_budgeted(seed, stores, store).failure


RUNS = {"ring": run_ring, "budgets": run_with_budgets, "crowd": run_crowd, "busy": run_busy}


def main(runs: str, store: str, first: int, most: int) -> None:
    """Hunt on a store, from a seed on."""
    assert Path(airflow_mq.__file__).is_relative_to(Path.cwd()), airflow_mq.__file__
    with open_stores([store]) as stores:
        for number in range(most):
            try:
                failure = RUNS[runs](first + number, stores, store)
            except (AssertionError, KeyError, MessageQueueError) as error:
                failure = error
            if failure is not None:
                name = failure.invariant if isinstance(failure, Violation) else type(failure).__name__
                text = str(failure).partition("\n")[0][:300]
                print(json.dumps({"seeds": number + 1, "invariant": name, "text": text}))
                return
    print(json.dumps({"seeds": None, "invariant": "", "text": ""}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
