"""What messages of a block carry beside their payloads, looked at for a few of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...core.claims import ClaimRun
from ...core.message import Address, check_number
from ..blocks.block import Block
from ..blocks.blocks import Blocks
from ..session import RingSession

#: How many pages of a block are looked through at most.
PAGES = 256


@dataclass(frozen=True)
class MessageHeaders:
    """What one message carries."""

    address: Address
    headers: Mapping[str, str]


class BlockHeaders:
    """Headers of a block's messages, without payloads."""

    def __init__(self, session: RingSession, blocks: Blocks) -> None:
        self.session, self._blocks = session, blocks

    def headers(
        self, block: str | Block, most: int, of_interest: Callable[[Mapping[str, str]], bool] = bool
    ) -> list[MessageHeaders]:
        """See `Inspect.headers`."""
        check_number(most, "a number of messages")
        held = block if isinstance(block, Block) else self._blocks.get(block)
        # A page of every queue, before a second one of any.
        runs = sorted(
            ((at, claim.origin, run) for claim in held.claims for at, run in enumerate(claim.runs) if run.count),
            key=lambda one: one[0],
        )[:PAGES]
        found: list[MessageHeaders] = []
        with self.session.snapshot() as (_, working_set):
            working_set.loader.pages.fetch([(origin, run.page) for _, origin, run in runs])
            for _, origin, run in runs:
                page = working_set.pages.get((origin, run.page))
                said = (
                    {} if page is None else working_set.loader.headers(origin, page, run.first, run.first + run.count)
                )
                found += [one for one in _of_run(origin, run, said) if of_interest(one.headers)]
                if len(found) >= most:
                    break
        return found[:most]


def _of_run(origin: str, run: ClaimRun, said: Mapping[int, Mapping[str, str]]) -> list[MessageHeaders]:
    items = set(run.handed_out())
    return [MessageHeaders(Address(origin, run.page, item), its) for item, its in sorted(said.items()) if item in items]
