"""Soak: mixed load without faults, sampled every few seconds: `python -m lab.chaos.soak --help`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.postgres_programs import find_bindirs
from tests.postgres_server import Server, running_postgres

from .database import prepare, run_folder
from .fleet import Fleet
from .plot import plot
from .sampling import Sample, Sampler
from .verdict import Verdict, judge


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a soak; return 1 if a message was lost, settled twice or stuck."""
    options = _parser().parse_args(arguments)
    with running_postgres(options.store) as server:
        samples, verdict = soak(server, options.seconds, options.every)
        version = server.version
    options.out.parent.mkdir(parents=True, exist_ok=True)
    result = {
        "postgres": version,
        "seconds": options.seconds,
        "verdict": asdict(verdict),
        "samples": [asdict(sample) for sample in samples],
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    options.out.with_suffix(".svg").write_text(plot(samples))
    print(verdict)
    return 0 if verdict.is_clean else 1


def soak(server: Server, seconds: float, every: float) -> tuple[list[Sample], Verdict]:
    """Run the clients for some seconds and return the samples and the verdict."""
    with server.database() as uri, run_folder() as folder:
        prepare(uri)
        fleet = Fleet(folder, uri)
        fleet.start()
        try:
            sampler, samples = Sampler(fleet, uri, server.pid), []
            began = time.monotonic()
            while time.monotonic() - began < seconds:
                time.sleep(min(every, max(0.0, began + seconds - time.monotonic())))
                samples.append(sampler.take())
                _show(samples[-1])
            fleet.quiet()
        finally:
            stuck = fleet.stop()
        return samples, judge(folder, uri, [], stuck)


def _show(sample: Sample) -> None:
    print(
        f"{sample.seconds:7,.0f} s  {sample.accepted:9,} accepted  clients {sample.memory >> 20} MB  "
        f"{sample.connections} connections  tables {sample.tables >> 20} MB  send {sample.send_median * 1_000:.1f} ms",
        file=sys.stderr,
        flush=True,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lab.chaos.soak", description="Run mixed load without faults and sample its resources."
    )
    parser.add_argument("--seconds", type=float, default=3_600, metavar="N", help="duration (default: 3600)")
    parser.add_argument("--every", type=float, default=10, metavar="N", help="seconds between samples (default: 10)")
    parser.add_argument("--store", choices=sorted(find_bindirs()), default="embedded", help="PostgreSQL of the run")
    parser.add_argument(
        "--out", type=Path, default=Path("build/soak.json"), metavar="FILE",
        help="file of the samples; the plot gets the same name with .svg (default: build/soak.json)",
    )  # fmt: skip
    return parser


if __name__ == "__main__":
    sys.exit(main())
