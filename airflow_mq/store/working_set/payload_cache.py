"""Cache of payloads, by the inbox rows in which they are stored."""

from __future__ import annotations


class PayloadCache:
    """The payloads of rows, and how many bytes of them were fetched since the last save."""

    def __init__(self) -> None:
        self.payloads: dict[tuple[str, int], list[bytes]] = {}
        self.fetched = 0

    def keep(self, origin: str, id_: int, payloads: list[bytes], size: int) -> None:
        """Keep the payloads of a row that was fetched."""
        self.payloads[origin, id_] = payloads
        self.fetched += size
