"""Servers of a ring, the DAGs and programs that service it, and the pages of its ledger."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime

from typing_extensions import NotRequired, TypedDict

from ..rules.config import RingConfig
from ..rules.patterns import OriginPatterns
from ..rules.weight import Weight, max_message_weight
from ..store import codec
from ..store.rows import LATEST
from ..store.unit import Unit
from .values import LedgerBlock, moment

#: Numbers of latest blocks, and of latest pages of the ledger, that are searched for servers.
LATEST_BLOCKS, LATEST_PAGES = 5_000, 200
MOST_NAME = 700
#: The name of a task as a server.
_TASK = re.compile(r"(?P<dag>DAG (['\"])(?P<id>.+?)\2) of Airflow '(?P<airflow>[\w-]+)'(?P<task>, task .+)")


def dag_of(name: str) -> str | None:
    """Return the id of the DAG in a server's name; None of a program."""
    task = _TASK.fullmatch(name)
    return task and task["id"]


@dataclass(frozen=True)
class Server:
    """A DAG or a program that services a ring, with the limit of its latest block."""

    #: `DAG 'orders' of Airflow 'west', task 'block.plan'`, or the user and host of a program.
    name: str
    #: The name as people read it: with the Airflow only where tasks of several service the ring.
    title: str
    is_dag: bool
    #: The ids of its DAG and of its Airflow; None of a program.
    dag_id: str | None
    airflow: str | None
    #: Weight of its blocks; None: the ring's service weight.
    limit: Weight | None
    #: Origins that it services; None: all.
    patterns: OriginPatterns | None
    #: The latest block that it planned, or call that it made, and when.
    block: int
    at: datetime
    #: Debt of its high messages to regular ones, in parts of a block.
    debt: int = 0

    def takes(self, origin: str) -> bool:
        """Return whether its blocks service this origin."""
        return self.patterns is None or self.patterns.takes(origin)

    def limit_in(self, config: RingConfig) -> Weight | None:
        """Return the weight of its blocks; None if neither it nor the ring has a limit."""
        return self.limit if self.limit is not None else config.service_weight

    def room_in(self, config: RingConfig) -> Weight | None:
        """Return the weight of the heaviest message that its blocks can carry; None without a limit."""
        limit = self.limit_in(config)
        return None if limit is None else max_message_weight(limit, config.costs) or Weight(0, 0)


class ServerRecord(TypedDict):
    """A server as blocks and pages of the ledger record it."""

    name: str
    dag: bool
    limit: list[int] | None
    origins: NotRequired[list[str]]
    debt: NotRequired[int]


def server_record(
    server: str | None, actor: str, limit: Weight | None, patterns: OriginPatterns | None
) -> ServerRecord:
    """Return the record of a server: a DAG by its name, or a program by its actor."""
    plain = None if limit is None else list(Weight.of(limit))
    record: ServerRecord = {"name": (server or actor)[:MOST_NAME], "dag": server is not None, "limit": plain}
    if patterns is not None:
        record["origins"] = list(patterns.patterns)
    return record


def servers_of(unit: Unit, ring: int) -> list[Server]:
    """Return the servers of a ring: DAGs first, and of these the one with the latest block."""
    found: dict[str, Server] = {}
    recorded = [(codec.read_json(record), block, at) for block, at, record in unit.blocks.servers(ring, LATEST_BLOCKS)]
    for block, at, data, _ in unit.ledger.heads(ring, LATEST_PAGES):
        recorded.append((codec.unpack_ledger_head(bytes(data)).get("server"), block, at))
    for server in (server_of(record, block, at) for record, block, at in recorded if record is not None):
        if server.name not in found or found[server.name].block < server.block:
            found[server.name] = server
    several = len({server.airflow for server in found.values()} - {None}) > 1
    servers = [replace(server, title=server.name) if several else server for server in found.values()]
    return sorted(servers, key=lambda server: (not server.is_dag, -server.block))


@codec.reading("the server of a ring")
def server_of(record: ServerRecord, block: int, at: int) -> Server:
    """Return the server that a block or a page of the ledger records."""
    limit, patterns = record["limit"], OriginPatterns.of(record.get("origins"))
    weight, debt = None if limit is None else Weight(*limit), int(record.get("debt", 0))
    name, is_dag = str(record["name"]), bool(record["dag"])
    task = _TASK.fullmatch(name) if is_dag else None
    title, dag, airflow = (task["dag"] + task["task"], task["id"], task["airflow"]) if task else (name, None, None)
    return Server(name, title, is_dag, dag, airflow, weight, patterns, block, moment(at), debt)


def ledger_pages(unit: Unit, ring: int, limit: int, first: int = 0, last: int = LATEST - 1) -> list[LedgerBlock]:
    """Return the pages of the ledger of the blocks from `first` to `last`, latest first."""
    return [_page(*row) for row in unit.ledger.latest(ring, limit, first, last + 1)]


def _page(block: int, at: int, data: bytes, id_: int) -> LedgerBlock:
    entries, skipped, halted = codec.unpack_ledger(data)
    record = codec.unpack_ledger_head(data).get("server")
    if record is None:
        return LedgerBlock(block, moment(at), entries, skipped=skipped, halted=halted, id=id_)
    server = server_of(record, block, at)
    return LedgerBlock(block, moment(at), entries, server.name, server.limit, server.patterns, skipped, halted, id_)
