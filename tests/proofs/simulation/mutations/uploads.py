"""Planted bugs of external payloads: what keeps them, and until when."""

from __future__ import annotations

from collections.abc import Sequence

from .planting import Mutation, bug

UPLOADS: Sequence[Mutation] = (
    bug(
        "report that does not keep what it sends", "engine/queue/blocks/blocks.py",
        "raw, data, attributes, unit.now()", 'raw, data, b"", unit.now()',
    ),
    bug(
        "upload of a processor ends with its call", "engine/queue/payloads.py",
        "        if delivery_at(self._session.place) is None:\n            release", "        if True:\n            release",
    ),
    bug(
        "payload kept for ever by a report", "engine/store/sql/block.sql",
        "DELETE FROM {s}outcome WHERE block = :block\n", "DELETE FROM {s}outcome WHERE block = :block AND attributes = x''\n",
    ),
    bug(
        "message that does not name its payload", "engine/queue/sending/packing.py",
        "pack_attributes(self.common, payloads if row.has_blobs else (), row.attributes)",
        "pack_attributes(self.common, (), row.attributes)",
    ),
    bug(
        "payload of one piece for all", "engine/store/blobs.py",
        "self._seq += len(chunks)", "self._seq += 0 * len(chunks)",
    ),
)  # fmt: skip
