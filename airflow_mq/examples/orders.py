"""Orders example: many tenants drop files of orders, and Spark turns them into one data set.

Each tenant has a queue, and each of its files is a message: the path of the file, the number of its orders, and its
checksum. The message carries its predicted weight, so that blocks are filled by work and not by count.

    drop/<tenant>/<name>.csv               a file that a tenant dropped
    taken/<tenant>/<name>.csv              the file, once it is a message
    orders/tenant=<tenant>/<name>.parquet  its converted orders
    manifest.json                          totals of the generated files, to verify the result

A file is converted whole or not at all, and always to the same path, so a repeated conversion changes nothing. The
processor runs on Spark's executors and requires pyarrow; see `process`. This module does not import Airflow.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import random
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..engine.rules.errors import ProcessorError
from ..engine.rules.message import Message
from ..engine.rules.weight import Weight

if TYPE_CHECKING:
    import pyarrow as pa

    from ..engine.queue import MessageQueue
    from ..engine.queue.values import Enqueued

log = logging.getLogger("airflow_mq.examples.orders")
#: Variable with the folder of the example, which Airflow's tasks and Spark's executors share.
VARIABLE = "AIRFLOW_MQ_ORDERS"
COLUMNS = ("order", "day", "product", "quantity", "cents")
PRODUCTS = ("bolt", "cable", "drill", "filter", "gasket", "hammer", "lamp", "pump", "valve", "wire")
LOUD, ARCHIVE, BROKEN = "loud-mart", "old-archive", "typo-trade"
QUIET = ("acme", "birch", "cobalt", "dune", "ember", "fjord", "grove", "harbour", "iris", "juniper")
#: Limit of a block: milliseconds of one core, and bytes.
BLOCK = Weight(2_500, 4 << 20)
ORDERS_A_MILLISECOND = 20


def folder() -> Path:
    """Return the folder of the example."""
    named = os.environ.get(VARIABLE)
    if not named:
        raise ProcessorError(f"set {VARIABLE} to a folder that Airflow's tasks and Spark's executors share")
    return Path(named)


# -- files of tenants --


def generate(place: Path, seed: int = 7, *, loud_files: int = 300, heavy_orders: int = 150_000) -> dict[str, Any]:
    """Write files of many tenants, and a manifest of their expected totals.

    One tenant is very loud, one file is far too heavy for any block, and one is corrupt: its last part is missing.
    """
    chance = random.Random(seed)  # noqa: S311 (the same files for everybody)
    plan = [(LOUD, chance.randint(200, 500)) for _ in range(loud_files)]
    for tenant in (*QUIET, ARCHIVE, BROKEN):
        # Most files are small, and some are a hundred times as large.
        plan += [(tenant, min(8_000, int(chance.lognormvariate(4.5, 1.5)) + 1)) for _ in range(chance.randint(1, 8))]
    manifest: dict[str, Any] = {"tenants": {}, "heavy": None, "corrupt": None, "files": 0}
    for number, (tenant, orders) in enumerate(plan):
        _drop(place, chance, manifest, tenant, f"{number:04}", orders)
    manifest["heavy"] = _drop(place, chance, manifest, ARCHIVE, "everything", heavy_orders, counted=False)
    manifest["corrupt"] = _drop(place, chance, manifest, BROKEN, "broken", 100, counted=False)
    broken = place / "drop" / manifest["corrupt"]["file"]
    broken.write_bytes(broken.read_bytes()[:-1_000])
    (place / "manifest.json").write_text(json.dumps(manifest, indent=1))
    return manifest


def _drop(
    place: Path,
    chance: random.Random,
    manifest: dict[str, Any],
    tenant: str,
    name: str,
    orders: int,
    *,
    counted: bool = True,
) -> dict[str, Any]:
    path = place / "drop" / tenant / f"{name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines, quantity, cents = [",".join(COLUMNS) + "\n"], 0, 0
    for number in range(orders):
        day, product = f"2026-11-{chance.randint(1, 21):02}", chance.choice(PRODUCTS)
        pieces, price = chance.randint(1, 40), chance.randint(99, 9_999)
        lines.append(f"{number},{day},{product},{pieces},{price}\n")
        quantity, cents = quantity + pieces, cents + pieces * price
    data = "".join(lines).encode()
    path.write_bytes(data)
    path.with_suffix(".sum").write_text(f"{orders} {hashlib.sha256(data).hexdigest()}\n")
    sums = {"files": 1, "orders": orders, "quantity": quantity, "cents": cents}
    if counted:
        manifest["tenants"].setdefault(tenant, Counter()).update(sums)
    manifest["files"] += 1
    return {"tenant": tenant, "file": f"{tenant}/{name}.csv", **sums}


# -- from files to messages --


def weigh(orders: int, size: int) -> Weight:
    """Return the weight of converting a file: time by its orders, size by its bytes."""
    return Weight(1 + orders // ORDERS_A_MILLISECOND, size)


def new_messages(place: Path) -> Iterator[tuple[str, Message]]:
    """Yield a tenant and a message for each dropped file."""
    for sums in sorted((place / "drop").glob("*/*.sum")):
        path = sums.with_suffix(".csv")
        name = f"{path.parent.name}/{path.name}"
        try:
            if (place / "taken" / name).exists():
                raise FileExistsError("a file of this name was taken before: rename the new one")
            orders, checksum = sums.read_text().split()
            pointer = {"file": name, "orders": int(orders), "sha256": checksum}
            weight = weigh(int(orders), path.stat().st_size)
        except (OSError, ValueError) as error:
            # The files of other tenants are enqueued.
            log.warning("left %s out: %s", name, error)
            continue
        # The name as the key: a file that is sent again after a crash is taken once.
        yield path.parent.name, Message(json.dumps(pointer).encode(), key=name, weight=weight)


def enqueue_new_files(queue: MessageQueue, place: Path) -> Enqueued:
    """Enqueue a message for each dropped file, and move the file out of the drop folder."""
    messages = list(new_messages(place))
    enqueued = queue.enqueue_messages(messages)
    for _, message in messages:
        name = json.loads(message.payload)["file"]
        taken = place / "taken" / name
        taken.parent.mkdir(parents=True, exist_ok=True)
        # Without its sums, a file that a crash leaves here is not sent again.
        for suffix in (".sum", ".csv"):
            (place / "drop" / name).with_suffix(suffix).replace(taken.with_suffix(suffix))
    return enqueued


# -- the processor --


def process(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Convert the files that the messages name; the shape is `arrow`, with an outcome per message."""
    import pyarrow as pa

    place = folder()
    for batch in batches:
        outcomes = [
            convert(place, origin, payload)
            for origin, payload in zip(batch.column("origin").to_pylist(), batch.column("payload").to_pylist())
        ]
        columns = [batch.column(name) for name in ("origin", "priority", "page", "item")]
        yield pa.RecordBatch.from_arrays(
            [*columns, pa.array(outcomes, pa.string())], ["origin", "priority", "page", "item", "outcome"]
        )


def convert(place: Path, tenant: str, payload: bytes) -> str:
    """Convert one file, and return its outcome."""
    try:
        pointer = json.loads(payload)
        name, checksum = str(pointer["file"]), str(pointer["sha256"])
    except (ValueError, KeyError, TypeError):
        return "bad"
    path = _source(place, tenant, name)
    if path is None:
        return "unsupported"
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != checksum:
        return "corrupt"
    _write_parquet(place / "orders" / f"tenant={tenant}" / f"{path.stem}.parquet", data)
    return "done"


def _source(place: Path, tenant: str, name: str) -> Path | None:
    """Return the file that a message names, if it is one of its tenant's: messages are written by others."""
    for where in ("taken", "drop"):
        home = (place / where / tenant).resolve()
        path = (place / where / name).resolve()
        if path.parent == home and path.suffix == ".csv" and path.is_file():
            return path
    return None


def _write_parquet(target: Path, data: bytes) -> None:
    """Write a file under another name, then rename it, so that readers never see a part of it."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    table = csv.read_csv(pa.BufferReader(data))
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    parquet.write_table(table, scratch)
    scratch.replace(target)


# -- results --


def totals(place: Path) -> dict[str, Counter[str]]:
    """Return files, orders, pieces and money of each tenant in the data set."""
    import pyarrow.compute as pc
    from pyarrow import parquet

    found: dict[str, Counter[str]] = {}
    for path in sorted((place / "orders").glob("tenant=*/[!.]*.parquet")):
        table = parquet.read_table(path, columns=["quantity", "cents"], partitioning=None)
        sums = {
            "files": 1,
            "orders": table.num_rows,
            "quantity": pc.sum(table["quantity"]).as_py(),
            "cents": pc.sum(pc.multiply(table["quantity"], table["cents"])).as_py(),
        }
        tenant = path.parent.name.partition("=")[2]
        found.setdefault(tenant, Counter()).update(sums)
    return found


def verify(place: Path, *, with_heavy: bool) -> list[str]:
    """Compare the data set with the manifest; return every difference."""
    manifest = json.loads((place / "manifest.json").read_text())
    expected = {tenant: Counter[str](sums) for tenant, sums in manifest["tenants"].items()}
    if with_heavy:
        heavy = manifest["heavy"]
        sums = {key: heavy[key] for key in ("files", "orders", "quantity", "cents")}
        expected.setdefault(heavy["tenant"], Counter()).update(sums)
    found = totals(place)
    return [
        f"{tenant}: {dict(found.get(tenant, {}))} in the data set, {dict(expected.get(tenant, {}))} dropped"
        for tenant in sorted({*found, *expected})
        if found.get(tenant) != expected.get(tenant)
    ]
