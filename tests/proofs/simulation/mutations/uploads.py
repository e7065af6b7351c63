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
        "payload kept for ever by a report", "engine/store/migrations/sqlite/0001_baseline.sql",
        "CREATE TRIGGER {s}outcome_leaves_blobs AFTER DELETE ON {s}outcome WHEN OLD.attributes <> x''",
        "CREATE TRIGGER {s}outcome_leaves_blobs AFTER DELETE ON {s}outcome WHEN false",
    ),
    bug(
        "delayed message that keeps no payload", "engine/store/migrations/sqlite/0001_baseline.sql",
        "CREATE TRIGGER {s}delayed_uses_blobs AFTER INSERT ON {s}delayed\nWHEN NEW.attributes",
        "CREATE TRIGGER {s}delayed_uses_blobs AFTER INSERT ON {s}delayed\nWHEN false AND NEW.attributes",
    ),
    bug(
        "payload of one piece for all", "engine/store/blobs.py",
        "self._seq += len(chunks)", "self._seq += 0 * len(chunks)",
    ),
)  # fmt: skip
