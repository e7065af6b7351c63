"""Run seeds until one violates an invariant; print which, as JSON. Run in a folder with a changed copy of the package."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import airflow_mq
from airflow_mq.core.errors import MessageQueueError

from ..crowd import run_crowd
from ..messages import Violation
from ..places import open_stores
from ..run import run_seed


def main(store: str, first: int, most: int, *, crowd: bool) -> None:
    """Hunt on a store, from a seed on."""
    assert Path(airflow_mq.__file__).is_relative_to(Path.cwd()), airflow_mq.__file__
    with open_stores([store]) as stores:
        for number in range(most):
            try:
                failure: BaseException | None
                if crowd:
                    failure = run_crowd(first + number, stores, store)
                else:
                    failure = run_seed(first + number, stores, store).failure
            except (AssertionError, MessageQueueError) as error:
                failure = error
            if failure is not None:
                name = failure.invariant if isinstance(failure, Violation) else type(failure).__name__
                text = str(failure).partition("\n")[0][:300]
                print(json.dumps({"seeds": number + 1, "invariant": name, "text": text}))
                return
    print(json.dumps({"seeds": None, "invariant": "", "text": ""}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), crowd="crowd" in sys.argv[4:])
