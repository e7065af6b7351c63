"""Run campaigns: `python -m lab.fuzz --help`."""

from __future__ import annotations

import argparse
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from lab.arguments import at_least

from .coverage import shortest
from .target import Target
from .targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"
#: Bytes of the kept inputs of one target.
MOST = 16_384


class Figures(NamedTuple):
    """Figures of one campaign."""

    name: str
    executions: int
    #: Branches by the given corpus, and by what is kept now.
    before: int
    after: int
    findings: int
    #: Processor time of the campaign.
    seconds: float

    def __str__(self) -> str:
        new = self.after - self.before
        return (
            f"| {self.name} | {self.executions:,} | {self.before:,} | {new:,} | {self.findings} | {self.seconds:,.0f} |"
        )


HEAD = "| target | executions | branches before | new | findings | processor seconds |\n| --- | ---: | ---: | ---: | ---: | ---: |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return 1 if a property does not hold."""
    options = _parser().parse_args(arguments)
    unknown = sorted(set(options.target) - set(TARGETS))
    if unknown:
        print(f"unknown target {', '.join(unknown)}: expected {', '.join(TARGETS)}", file=sys.stderr)
        return 2
    if options.list:
        for target in TARGETS.values():
            print(f"{target.name}: {target.holds}; errors: {target.errors}; {', '.join(target.modules)}")
        return 0
    if find_spec("atheris") is None:
        print("atheris is missing: install the extra `fuzz`, for example with `make fuzz`", file=sys.stderr)
        return 2
    figures = []
    for name in options.target or TARGETS:
        figures.append(campaign(TARGETS[name], options.seconds, options.corpus / name, options.findings / name))
        print(figures[-1], file=sys.stderr, flush=True)
    print(HEAD, *figures, sep="\n")
    return 1 if any(one.findings for one in figures) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lab.fuzz",
        description="Mutate the inputs of targets by coverage, keep short inputs that reach more, and print figures.",
    )
    parser.add_argument(
        "target", nargs="*", metavar="TARGET", help="targets to run, one after the other (default: all)"
    )
    parser.add_argument(
        "--seconds", type=at_least(1), default=60, metavar="S", help="time of each target (default: 60)"
    )
    parser.add_argument(
        "--corpus", type=Path, default=CORPUS, metavar="DIR", help="kept inputs (default: lab/fuzz/corpus)"
    )
    parser.add_argument(
        "--findings", type=Path, default=Path("build/fuzz"), metavar="DIR", help="failing inputs (default: build/fuzz)"
    )
    parser.add_argument("--list", action="store_true", help="list targets, their properties and their errors")
    return parser


def campaign(target: Target, seconds: int, corpus: Path, findings: Path) -> Figures:
    """Run one campaign in a process of its own, and keep what it found."""
    target.load()
    given = [*target.seeds, *(path.read_bytes() for path in sorted(corpus.glob("*")))]
    _, before = shortest(target, given, 1 << 30)
    shutil.rmtree(findings, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="mq-fuzz-") as work:
        for number, data in enumerate(given):
            (Path(work) / f"{number:06}").write_bytes(data)
        options = [target.name, str(seconds), work, str(findings), *target.modules]
        command = [sys.executable, "-m", "lab.fuzz.campaign", *options]
        began = _processor_time()
        ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        seconds_used = _processor_time() - began
        executions = re.search(r"number_of_executed_units: (\d+)", ended.stdout)
        if executions is None:
            print(ended.stdout[-2_000:], file=sys.stderr)
        reached = [path.read_bytes() for path in Path(work).iterdir()]
    found = sorted({path.stem for path in findings.glob("*")})
    for name in found:
        print(f"{target.name}: {findings / name}", file=sys.stderr)
    chosen, after = shortest(target, [*target.seeds, *reached], MOST)
    _keep(corpus, [data for data in chosen if data not in target.seeds])
    count = int(executions[1]) if executions else 0
    return Figures(target.name, count, before, after, len(found) + (ended.returncode != 0), seconds_used)


def _processor_time() -> float:
    """Return the processor time of all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _keep(corpus: Path, chosen: Sequence[bytes]) -> None:
    """Replace the kept inputs; those with a name, which failed once, stay."""
    corpus.mkdir(parents=True, exist_ok=True)
    for path in corpus.glob("*"):
        if not path.name.startswith("failed-"):
            path.unlink()
    for data in chosen:
        (corpus / sha256(data).hexdigest()[:16]).write_bytes(data)


if __name__ == "__main__":
    sys.exit(main())
