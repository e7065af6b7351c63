"""Install the other queues, measure everybody on one PostgreSQL, and write the report.

python -m lab.benchmarks                 all of it, into lab/benchmarks/report
python -m lab.benchmarks --quick         little of everything, to see that it works
python -m lab.benchmarks --only single   one measure (several: --only single out)
python -m lab.benchmarks --report DIR    the report of figures taken before, once more
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from lab.benchmarks import about, install, report
from lab.benchmarks.contenders import BARE, OURS, PEERS, PGQ, Contender
from lab.benchmarks.lab import SETTINGS, Lab
from lab.benchmarks.measures.flat import flat, held, passed
from lab.benchmarks.measures.flood import flood
from lab.benchmarks.measures.inspection import inspection
from lab.benchmarks.measures.latency import latency
from lab.benchmarks.measures.life import life
from lab.benchmarks.measures.memory import memory
from lab.benchmarks.measures.planning import planning
from lab.benchmarks.measures.profile import profile
from lab.benchmarks.measures.single import single
from lab.benchmarks.measures.spark import spark
from lab.benchmarks.measures.storage import storage
from lab.benchmarks.measures.sustained import sustained
from lab.benchmarks.measures.throughput import bulk, out, tens
from lab.benchmarks.sizes import FULL, QUICK, Sizes
from tests.postgres_server import running_postgres

HERE = Path(__file__).resolve().parent
MEASURES: dict[str, Callable[[Lab, list[Contender]], None]] = {
    "bulk": bulk,
    "tens": tens,
    "single": single,
    "out": out,
    "log": life,
    "flat": flat,
    "held": held,
    "passed": passed,
    "plan": planning,
    "inspect": inspection,
    "memory": memory,
    "latency": latency,
    "flood": flood,
    "storage": storage,
    "profile": profile,
    "sustained": sustained,
    "spark": spark,
}


def main() -> int:
    options = _options()
    folder = (
        options.report or options.out or (install.ROOT / "build" / "benchmarks" if options.quick else HERE / "report")
    )
    folder.mkdir(parents=True, exist_ok=True)
    if options.report:
        report.write(folder, *report.read(folder))
        return 0
    before = report.read(folder) if options.apart else ({}, [])
    contenders, missing = _those_to_be_had(options.contenders)
    raw = folder / "raw.jsonl"
    raw.unlink(missing_ok=True)
    with running_postgres("embedded", SETTINGS) as server:
        lab = Lab(server, _sizes(options), raw)
        told = {
            "date": time.strftime("%Y-%m-%d"),
            "command": _command(options),
            "sizes": lab.sizes.name,
            "machine": about.machine(),
            "server": lab.shown(),
            "contenders": lab.versions,
            "missing": missing,
        }
        start = time.monotonic()
        for name in options.only or MEASURES:
            MEASURES[name](lab, [one for one in contenders if one is not PGQ or name == "sustained"])
        lab.say(f"measured in {(time.monotonic() - start) / 60:.1f} minutes")
    if options.apart:
        told["apart"] = options.apart
    report.write(folder, *report.merged(before, (told, lab.samples)))
    raw.unlink()
    print(f"see {folder / 'REPORT.md'}")
    return 0


def _those_to_be_had(names: list[str] | None) -> tuple[list[Contender], dict[str, str]]:
    """The contenders asked for, and why some of them could not be had."""
    found, missing = [], {}
    for contender in (OURS, BARE, *PEERS, PGQ):
        if names and contender.name not in names:
            continue
        try:
            contender.command()
        except install.Unavailable as why:
            print(f"  {contender.name} cannot be had here: {why}", flush=True)
            missing[contender.name] = str(why)
        else:
            found.append(contender)
    return found, missing


def _sizes(options: argparse.Namespace) -> Sizes:
    sizes = QUICK if options.quick else FULL
    return replace(sizes, minutes=options.minutes) if options.minutes else sizes


def _command(options: argparse.Namespace) -> str:
    """Return the arguments without the path of the report."""
    words = ["python", "-m", "lab.benchmarks", *(["--quick"] if options.quick else [])]
    words += ["--minutes", f"{options.minutes:g}"] if options.minutes else []
    for name in ("only", "contenders"):
        if chosen := getattr(options, name):
            words += [f"--{name}", *chosen]
    return shlex.join(words)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m lab.benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small counts and few runs, to see that it works")
    parser.add_argument("--only", nargs="+", choices=MEASURES, metavar="MEASURE", help=f"of {', '.join(MEASURES)}")
    parser.add_argument(
        "--contenders",
        nargs="+",
        choices=[contender.name for contender in (OURS, BARE, *PEERS, PGQ)],
        metavar="NAME",
        help="of ours, bare, and the peers by name; default: all",
    )
    parser.add_argument(
        "--apart",
        metavar="TEXT",
        help="keep the samples of other measures of the report in the folder; TEXT states when they were made",
    )
    parser.add_argument("--minutes", type=float, help="minutes of mixed load of each contender (measure sustained)")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--out", type=Path, metavar="DIR", help="folder for the report")
    where.add_argument(
        "--report", type=Path, metavar="DIR", help="measure nothing, write the report of this folder anew"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
