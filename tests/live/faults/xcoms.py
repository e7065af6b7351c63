"""XCom back end that fails now and then."""

from __future__ import annotations

import fcntl
import os
from typing import Any

from airflow.sdk.bases.xcom import BaseXCom

from .gates import FAILING, gates_folder


class UnreliableXCom(BaseXCom):
    """Values in Airflow's database, behind a service that is sometimes away."""

    @staticmethod
    def serialize_value(value: Any, **about: Any) -> Any:
        fail_now_and_then("write")
        return BaseXCom.serialize_value(value, **about)

    @staticmethod
    def deserialize_value(result: Any) -> Any:
        fail_now_and_then("read")
        return BaseXCom.deserialize_value(result)


def fail_now_and_then(way: str) -> None:
    """Raise an error at the first, fourth, seventh... call of a way that fails."""
    folder = gates_folder()
    if not (folder / FAILING).exists() or (folder / FAILING).read_text() != way:
        return
    with (folder / f"{FAILING}.calls").open("a+") as calls:
        fcntl.flock(calls, fcntl.LOCK_EX)
        calls.write("x")
        calls.flush()
        fails = os.fstat(calls.fileno()).st_size % 3 == 1
    if fails:
        raise ConnectionError(f"the XCom service cannot be reached: {way}")
