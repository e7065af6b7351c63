"""Lease of a block: renewed while its messages are processed."""

from __future__ import annotations

from collections.abc import Callable

from ..engine.queue import MessageQueue
from ..engine.rules.errors import MessageQueueError, TokenRefused, UnknownBlock
from ..ticker import Renewal
from .reports import patiently


class BlockLease(Renewal):
    """Renews a block's lease now, and from then on by a thread, until the block ends.

    Raises `TokenRefused` at once if the block has ended.

    :param lease: seconds for which each renewal holds; the block's own if left out
    :param on_refused: called in that thread when the block was settled, released, or is past its deadline, and after
        each further wait: a job may begin later
    """

    def __init__(
        self, queue: MessageQueue, token: str, lease: float | None = None, on_refused: Callable[[], None] | None = None
    ) -> None:
        self._blocks, self._token, self._lease, self._on_refused = queue.blocks, token, lease, on_refused
        #: Reason for which the block takes no more outcomes.
        self.refused: MessageQueueError | None = None
        patiently(lambda: self._blocks.renew(token, lease))
        own = patiently(lambda: self._blocks.get(token)).lease if lease is None else lease
        super().__init__(self._renew_block, own, "a block", patience=5.0)

    def _renew_block(self) -> bool:
        try:
            self._blocks.renew(self._token, self._lease)
        except (TokenRefused, UnknownBlock) as error:
            self.refused = error
            if self._on_refused:
                self._on_refused()
        return self.refused is None or self._on_refused is not None
