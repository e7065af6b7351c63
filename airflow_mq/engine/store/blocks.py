"""Repository of blocks: their claims, and the outcomes reported to them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from ..rules.claims import Claim
from . import codec
from .primitives import Repository, as_json, columns
from .rows import LATEST, PLANNED, BlockRow


class ClaimRow(NamedTuple):
    """A packed claim of a block on a queue; with the state of the block where that was asked for."""

    origin: str
    data: bytes
    block: int
    #: None if there is no such block.
    state: int | None = None
    by_hand: bool = False
    #: Whether the end of the block is recorded and not applied.
    is_ending: bool = False

    @property
    def claim(self) -> Claim:
        return codec.unpack_claim(self.origin, bytes(self.data))


class EndRow(NamedTuple):
    """The recorded end of a block, which is to be applied by the process that holds the ring."""

    row: BlockRow
    number: int
    #: When the block ended, and the settings in force then.
    at: int
    terms: Any
    #: The reason for which it cannot be applied.
    error: str

    @property
    def terms_json(self) -> Any:
        """The settings in force when the block ended."""
        return codec.read_json(self.terms)

    def sends_to(self, names: Collection[str]) -> bool:
        """Return whether outcomes of the block enqueue messages in these queues; true of a damaged end."""
        sent = self.terms_json.get("sent")
        return sent is None or not set(names).isdisjoint(sent)


class Blocks(Repository):
    """Blocks of a ring."""

    __slots__ = ()

    def next_number(self, ring: int, block: int) -> int:
        """Count up and return the number of a ring's next block, whose id is given; requires the ring lock."""
        number: int = self.unit.only("next_block", ring=ring, id=block)[0]
        return number

    def insert(self, ring: int, block: BlockRow, claims: Sequence[tuple[int, str, bytes, bool]]) -> None:
        """Write a block and its claims: place, queue, packed claim, and whether it holds a message of the window."""
        self.unit.run(
            "insert_block", ring=ring, id=block.id, number=block.number, key=block.key, token=block.token,
            by_hand=block.by_hand, seconds=block.seconds, deadline=block.deadline, planned_at=block.planned_at,
            details=as_json(block.details),
        )  # fmt: skip
        # A claim without a message of the window does not block its queue.
        rows = [(seq, origin, data, block.by_hand or not held) for seq, origin, data, held in claims]
        self.unit.put("insert_claim", columns(("seq", "origin", "data", "by_hand"), rows), ring=ring, block=block.id)

    def latest(self, ring: int, state: int | None = None, before: int = LATEST, limit: int = LATEST) -> list[BlockRow]:
        """Return blocks before a number, the latest first; of any state by default."""
        wanted = -1 if state is None else state
        return self._blocks("blocks", ring=ring, state=wanted, before=before, limit=limit)

    def by_key(self, ring: int, key: str) -> BlockRow | None:
        """Return the live block with this key."""
        return self._block("block_by_key", ring=ring, key=key)

    def by_token(self, ring: int, token: bytes) -> BlockRow | None:
        return self._block("block_by_token", ring=ring, token=token)

    def locked_if_free(self, ring: int, token: bytes) -> BlockRow | None:
        """Return a block by its token, unless another transaction reports to it."""
        return self._block("lock_block", ring=ring, token=token)

    def dead(self, ring: int, now: int) -> list[BlockRow]:
        """Return blocks past their deadline; skip those that a transaction completes at this moment."""
        return self._blocks("dead_blocks", ring=ring, now=now)

    def servers(self, ring: int, limit: int) -> list[tuple[int, int, Any]]:
        """Return the latest block of each process that planned some, when it was planned, and the process."""
        return self.unit.rows("block_servers", ring=ring, before=LATEST, limit=limit)

    def renew(self, ring: int, token: bytes, seconds: float | None, now: int) -> int | None:
        """Extend the deadline of a live block, by its own seconds unless others are given; None if it does not live."""
        rows = self.unit.rows("renew_block", ring=ring, token=token, seconds=seconds, now=now)
        return rows[0][0] if rows else None

    def close(self, ring: int, token: bytes, now: int) -> bool:
        """Close a live block for reports; return whether it was live."""
        return bool(self.unit.run("close_block", ring=ring, token=token, now=now))

    def end(self, block: int, state: int, now: int | None, details: object) -> None:
        """Record that a block was settled or released."""
        self.unit.put("end_block", block=block, state=state, now=now, details=as_json(details))

    def forget_claims(self, block: int) -> None:
        """Delete the claims and the reports of a block that has ended."""
        self.unit.put("delete_claims", block=block, seq=LATEST)
        self.unit.put("delete_outcomes", block=block)

    def record_problem(self, block: BlockRow, problem: str) -> None:
        """Record why a block that lives cannot be settled. Its end removes the record."""
        self.end(block.id, PLANNED, None, {**codec.read_json(block.details), "problem": problem})

    # Recorded ends.

    def record_end(self, ring: int, block: int, at: int, terms: object) -> None:
        """Record that the end of a block is to be applied."""
        number = self.unit.fresh_ids(1)[0]
        self.unit.put("record_end", ring=ring, block=block, number=number, at=at, terms=as_json(terms))
        self.unit.put("count_ends", ring=ring, more=1)

    def ends(self, ring: int, *, failed: bool = False, limit: int = LATEST) -> list[EndRow]:
        """Return the ends that are to be applied, in order.

        :param failed: return those that cannot be applied, too
        """
        rows = self.unit.rows("ends", ring=ring, all=failed, limit=limit)
        return [EndRow(BlockRow(*row[4:]), *row[:4]) for row in rows]

    def ends_on(self, ring: int, names: Sequence[str]) -> list[EndRow]:
        """Return the ends that are to be applied, in order, and that change messages of these queues."""
        blocks = {claim.block for claim in self.claims_on(ring, names)}
        return [end for end in self.ends(ring) if end.row.id in blocks or end.sends_to(names)]

    def advance_end(self, ring: int, block: int, seq: int, data: bytes, terms: object) -> None:
        """Move the cursor of an end behind the part that was applied.

        :param seq: the number of the first claim that is left; those before it are forgotten
        :param data: that claim, packed, without what is applied
        """
        self.unit.put("delete_claims", block=block, seq=seq)
        self.unit.put("replace_claim", block=block, seq=seq, data=data)
        self.unit.put("save_end", ring=ring, block=block, terms=as_json(terms), error="")

    def set_apart(self, ring: int, end: EndRow, error: str) -> None:
        """Keep the reason for which an end cannot be applied, so that no holder tries it again; or forget it."""
        self.unit.put("save_end", ring=ring, block=end.row.id, terms=as_json(end.terms), error=error)
        self.unit.put("count_ends", ring=ring, more=-1 if error else 1)

    def forget_end(self, ring: int, block: int) -> None:
        """Forget an end that was applied."""
        self.unit.put("delete_end", ring=ring, block=block)
        self.unit.put("count_ends", ring=ring, more=-1)

    # Claims.

    def claims(self, block: int) -> list[ClaimRow]:
        """Return the claims of a block, in order of its visits."""
        return [ClaimRow(*row) for row in self.unit.rows("claims", block=block)]

    def claims_on(self, ring: int, origins: Sequence[str]) -> list[ClaimRow]:
        """Return the claims of live blocks on these queues."""
        return [ClaimRow(*row) for row in self.unit.rows("claims_of", {"origin": origins}, ring=ring)]

    def in_flight(self, ring: int) -> list[ClaimRow]:
        """Return all claims of a ring, with the state of their blocks."""
        return [ClaimRow(*row) for row in self.unit.rows("all_claims", ring=ring)]

    # Reports.

    def report(self, ring: int, token: bytes, data: bytes, attributes: bytes, now: int) -> bool:
        """Write a report to a live block; return whether it is live.

        :param attributes: names the external payloads that the report keeps until the block ends
        """
        drawn = {"id": self.unit.fresh_ids(1)[0]} if self.unit.draws_ids else {}
        return bool(self.unit.run("report", ring=ring, token=token, data=data, attributes=attributes, now=now, **drawn))

    def reports(self, block: int) -> list[bytes]:
        """Return the reports to a block, in order."""
        return [bytes(data) for _, data in self.unit.rows("outcomes", {"block": [block]})]

    def reports_on(self, ring: int, origins: Sequence[str]) -> list[tuple[str, bytes]]:
        """Return queue and report of each report to live blocks that claimed from these queues; those to each in order.

        A reader's role gets none.
        """
        if not origins or not self.unit.reads_reports():
            return []
        claimed: dict[int, list[str]] = {}
        for claim in self.claims_on(ring, origins):
            claimed.setdefault(claim.block, []).append(claim.origin)
        rows = self.unit.rows("outcomes", {"block": list(claimed)})
        return [(origin, bytes(data)) for block, data in rows for origin in claimed[block]]

    def _block(self, statement: str, **values: object) -> BlockRow | None:
        rows = self.unit.rows(statement, **values)
        return BlockRow(*rows[0]) if rows else None

    def _blocks(self, statement: str, **values: object) -> list[BlockRow]:
        return [BlockRow(*row) for row in self.unit.rows(statement, **values)]
