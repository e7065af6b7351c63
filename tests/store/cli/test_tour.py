"""`make tour`: each command of the first look works as printed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOUR = Path(__file__).parents[2] / "tour.sh"


@pytest.mark.slow
def test_the_tour_ends_well() -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(["sh", TOUR], env={**os.environ, "PATH": path}, capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")
    shown = done.stdout.split("$ airflow-mq ")
    assert len(shown) == TOUR.read_text("utf-8").count("\nrun ") + 1
    assert "21 processed, 1 set aside" in done.stdout
    assert "1 thing for a person to decide" in done.stdout
    assert shown[-1].endswith("all is well in ring default\n")
