"""Planted bugs about recorded ends: one writer per ring. The numbers are those of its rules."""

from __future__ import annotations

from collections.abc import Sequence

#: Name and file of each, then texts of today, each followed by the text that replaces it.
ENDS: Sequence[Sequence[str]] = (
    (
        "verdict judged without its reports when it is applied", "engine/queue/blocks/settlement.py",
        "settling = Settling(working_set, end.row, terms.actor, terms)\n",
        "settling = Settling(working_set, end.row, terms.actor, terms, answers={} if only_first else None)\n",
    ),
    (
        "report that comes after the end of its block", "engine/store/sql/block.sql",
        "AND b.token = :token AND b.state = 0 AND b.deadline > :now\n\n-- name: report (postgres)",
        "AND b.token = :token AND b.deadline > :now\n\n-- name: report (postgres)",
    ),
    (
        "ring read before recorded ends are applied", "engine/queue/holding.py",
        "is_free and (applied or not ring.locked.state.ends)", "is_free",
    ),
    (
        "ends applied with the latest first", "engine/store/sql/block.sql",
        "ORDER BY e.number\n", "ORDER BY e.number DESC\n",
    ),
    (
        "part of an end applied twice", "engine/store/blocks.py",
        '        self.unit.put("delete_claims", block=block, seq=seq)\n', "",
    ),
    (
        "cursor forgets where ordered queues stopped", "engine/queue/blocks/settling.py",
        "            self.settler.stopped.update(terms.stopped)\n            self.settler.left.update(terms.left)\n", "",
    ),
    (
        "end applied and not forgotten", "engine/queue/blocks/settlement.py",
        "            blocks.forget_end(self.ring_id, block)\n", "",
    ),
    (
        "claims forgotten when the end is recorded", "engine/queue/blocks/settlement.py",
        "            unit.blocks.record_end(",
        "            unit.blocks.forget_claims(row.id)\n            unit.blocks.record_end(",
    ),
    (
        "readers show recorded ends as in flight", "engine/queue/session.py",
        "if ring.ends and unit.reads_reports():", "if False:",
    ),
    (
        "block applied beside the holder of the ring", "engine/queue/blocks/settlement.py",
        "(ring.locked.now, ring.holder is None)", "(ring.locked.now, True)",
    ),
    (
        "recorded end not counted, so that no holder looks for it", "engine/store/blocks.py",
        '        self.unit.put("count_ends", ring=ring, more=1)\n', "",
    ),
    (
        "end that cannot be applied stops the ring", "engine/queue/blocks/settlement.py",
        "if end is None or passes:", "if True:",
    ),
    (
        "end set apart that nothing shows", "engine/queue/blocks/blocks.py",
        "failed=True) if end.error]", "failed=True) if not end.error]",
    ),
)  # fmt: skip
