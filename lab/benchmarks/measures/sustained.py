"""Whether a mixed load goes on as it began, beside a transaction that stays open.

Each contender gets the same load on a fresh database. A reader holds a snapshot from before the first message, so
vacuum removes nothing of what is deleted. Sizes are sampled from another connection.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from math import inf
from statistics import median

import psutil
import psycopg

from lab.benchmarks.contenders import OURS, PGQ, Contender, Running
from lab.benchmarks.lab import SETTINGS, Lab
from lab.benchmarks.rows import Row
from lab.benchmarks.stats import Sample, pick
from tests.postgres_programs import find_bindirs
from tests.postgres_server import running_postgres

TAKING_PART = ("ours", "pgmq", "river")
#: Traces of finished messages are kept for a part of the run.
KEPT = 12
# A table with its indexes and TOAST: bytes, live and dead rows. What the open transaction forbids to vacuum is the share
# of dead rows.
SIZES = """
SELECT sum(pg_relation_size(c.oid)) FILTER (WHERE c.relkind = 'r')::float8 AS tables,
       sum(pg_relation_size(c.oid)) FILTER (WHERE c.relkind = 't')::float8 AS toast,
       sum(pg_indexes_size(c.oid))::float8 AS indexes,
       sum(s.n_dead_tup)::float8 AS dead,
       sum((pg_relation_size(c.oid) + pg_indexes_size(c.oid))
           * CASE WHEN s.n_dead_tup > 0 THEN s.n_live_tup::float8 / (s.n_live_tup + s.n_dead_tup) ELSE 1 END)::float8 AS own
FROM pg_class c JOIN pg_stat_all_tables s ON s.relid = c.oid
WHERE c.relkind IN ('r', 't') AND s.schemaname NOT IN ('pg_catalog', 'information_schema') AND c.oid >= 16384
"""


def sustained(lab: Lab, contenders: list[Contender]) -> None:
    """`sustained`: figures of each interval; variant: the server's version, and whether a transaction is held open."""
    for contender in contenders:
        if contender.name in TAKING_PART:
            _measure(lab, contender)
    if PGQ not in contenders or "system" not in find_bindirs():
        return
    with running_postgres("system", SETTINGS) as server:
        system = Lab(server, lab.sizes, lab.raw)
        for contender in (OURS, PGQ):
            if contender in contenders:
                _measure(system, contender)
        lab.samples += system.samples
        lab.versions.update({PGQ.name: system.versions.get(PGQ.name, "")})


def _measure(lab: Lab, contender: Contender) -> None:
    variant = f"PostgreSQL {lab.server.version}"
    lab.say(f"{lab.sizes.minutes:g} minutes of mixed load: {contender.name}, {variant}")
    seconds = lab.sizes.minutes * 60
    every = min(10.0, seconds / 12)
    order = {"seconds": seconds, "every": every, "rate": lab.sizes.rate, "keep": seconds / KEPT}
    with (
        lab.trying("sustained", contender, variant),
        lab.clone(lab.prepared(f"{contender.name}, new", _new(lab, contender)), contender) as (uri, driver),
        _held(uri),
        ThreadPoolExecutor(1) as pool,
    ):
        load = pool.submit(driver, "sustained", **order)
        for size in _sampled(lab, uri, every, load.done):
            # The driver ends its senders after the load.
            if size["at"] < seconds + every / 2:
                lab.note("sustained size", contender.name, variant, whole=seconds, **size)
        for window in load.result()["windows"]:
            lab.note("sustained", contender.name, variant, whole=seconds, **window)


def _new(lab: Lab, contender: Contender) -> Callable[[str], None]:
    def prepare(uri: str) -> None:
        with Running(contender, uri) as driver:
            if contender is not OURS:
                driver("open")
            lab.versions[contender.name] = driver("setup")["version"]

    return prepare


@contextmanager
def _held(uri: str) -> Iterator[None]:
    """Hold a snapshot open that has read something; check that it could be held to the end."""
    with psycopg.connect(uri) as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.execute("SELECT count(*) FROM pg_database")
        yield
        reader.execute("SELECT count(*) FROM pg_database")


def _sampled(lab: Lab, uri: str, every: float, done: Callable[[], bool]) -> Iterator[dict[str, float]]:
    """Yield sizes and the server's CPU seconds of each interval until the load is done."""
    used = _cpu(lab.server.pid)
    with psycopg.connect(uri, autocommit=True) as connection:
        start = time.monotonic()
        due = start + every
        while not done():
            time.sleep(min(0.2, every / 10))
            if time.monotonic() < due:
                continue
            due += every
            cursor = connection.execute(SIZES)
            row = cursor.fetchone()
            assert row and cursor.description
            now = _cpu(lab.server.pid)
            spent = sum(max(0.0, seconds - used.get(pid, 0.0)) for pid, seconds in now.items())
            used = now
            yield {
                **{column.name: value or 0.0 for column, value in zip(cursor.description, row, strict=True)},
                "server": spent,
                "at": time.monotonic() - start,
            }


def _cpu(pid: int) -> dict[int, float]:
    """CPU seconds of each process of a server."""
    found = {}
    for process in psutil.Process(pid).children():
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        found[process.pid] = times.user + times.system
    return found


def _sixth(taken: Sequence[Sample], number: int) -> Sequence[Sample]:
    """Return the samples of one sixth of the run: 1 to 6."""
    parts = [min(6, 1 + int(6 * (sample["at"] / sample["whole"] - 1e-3))) for sample in taken]
    return [sample for sample, part in zip(taken, parts, strict=True) if part == number]


def _latency(windows: Sequence[Sample], name: str) -> float:
    """Return the median over intervals; endless if nothing was processed in any."""
    return float(median([sample[name] for sample in windows if sample["out"]] or [inf]))


def _rate(windows: Sequence[Sample]) -> float:
    return float(sum(sample["out"] for sample in windows) / (sum(sample["seconds"] for sample in windows) or inf))


def rows(samples: Sequence[Sample]) -> list[Row]:
    kinds = dict.fromkeys((sample["contender"], sample["variant"]) for sample in pick(samples, "sustained"))
    return [row for name, variant in kinds for row in _rows(samples, name, variant)]


def _rows(samples: Sequence[Sample], name: str, variant: str) -> list[Row]:
    windows = pick(samples, "sustained", name, variant=variant)
    sizes = pick(samples, "sustained size", name, variant=variant)
    first, last = _sixth(windows, 1), _sixth(windows, 6)
    is_ours = name == "ours"
    whose = f"{name}, {variant}, {windows[0]['whole'] / 60:g} minutes"

    def row(
        what: str, before: float, after: float, form: str, bound: float | None = None, at_least: bool = False
    ) -> Row:
        ratio = after / before if before not in (0, inf) else None
        detail = f"{before:,.{form}}, then {after:,.{form}}"
        title = f"{whose}: {what}, the last sixth against the first"
        return Row("sustained", title, ratio, bound if is_ours else None, at_least, detail)

    found = [row("messages a second out", _rate(first), _rate(last), "0f", 0.9, True)]
    for rank, bound in (("p99", 1.1), ("p50", None)):
        found.append(row(f"{rank} latency in ms", _latency(first, rank), _latency(last, rank), "0f", bound))
    spent = [_spent(_sixth(sizes, number), part) for number, part in ((1, first), (6, last))]
    found.append(row("server CPU a message in µs", *spent, "0f"))
    return [*found, _size_row(sizes, whose, is_ours)]


def _size_row(sizes: Sequence[Sample], whose: str, is_ours: bool) -> Row:
    most = [max((sample["own"] for sample in _sixth(sizes, number)), default=0.0) for number in (2, 6)]
    at_end = sizes[-1] if sizes else {}
    grown = sum(at_end.get(part, 0.0) for part in ("tables", "toast", "indexes"))
    return Row(
        "sustained",
        f"{whose}: estimated size without dead rows, the peak of the last sixth against that of the second",
        most[1] / most[0] if most[0] else None,
        1.2 if is_ours else None,
        at_least=False,
        detail=f"{most[1] / (1 << 20):,.1f} MiB; at the end {grown / (1 << 20):,.0f} MiB with "
        f"{at_end.get('dead', 0):,.0f} dead rows",
    )


def _spent(sizes: Sequence[Sample], windows: Sequence[Sample]) -> float:
    """Microseconds of server CPU for each message."""
    return 1e6 * sum(sample["server"] for sample in sizes) / (sum(sample["out"] for sample in windows) or inf)
