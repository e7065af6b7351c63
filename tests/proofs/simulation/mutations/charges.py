"""Planted bugs of charges, and of the sums of days."""

from __future__ import annotations

from collections.abc import Sequence

from .planting import Mutation, bug

USAGE = "tests/store/queue/test_usage.py::"
BILLS, PROOF = "tests/store/queue/test_bills.py::", "tests/unit/test_bills.py::"

CHARGES: Sequence[Mutation] = (
    bug(
        "attempt that yields is not charged", "engine/rules/service.py",
        "int(not isinstance(outcome, Overweight))", "int(not isinstance(outcome, (Overweight, Yield)))",
    ),
    bug(
        "planned weight charged with each part of an end", "engine/rules/settle.py",
        "planned = claim.planned if is_last else ZERO", "planned = claim.planned",
    ),
    bug(
        "charges of a save written again with the next one", "engine/store/working_set/__init__.py",
        "        self.changes = Changes()\n        return rows\n",
        "        self.changes, before = Changes(), self.changes\n        self.changes.charges = before.charges\n"
        "        return rows\n",
    ),
    bug(
        "recorded end charged when it is recorded, too", "engine/queue/blocks/settlement.py",
        "            unit.blocks.record_end(self.ring_id, row.id, now, settling.terms().to_json())\n",
        "            unit.blocks.record_end(self.ring_id, row.id, now, settling.terms().to_json())\n"
        "            unit.charges.insert(self.ring_id, working_set.changes.charges, now, row.number, \"\")\n",
    ),
    bug(
        "late charges replace the sums of their day", "engine/store/charges.py",
        "            add_charges(sums, fresh)\n", "            sums = fresh\n",
        test=f"{USAGE}test_sums_of_closed_days_replace_their_rows_in_reports[sqlite]",
    ),
    bug(
        "charges deleted that are in no sums yet", "engine/store/sql/charge.sql",
        "          AND c.id <= (SELECT max(u.last) FROM {s}usage_day u WHERE u.ring = :ring)\n", "",
        test=f"{USAGE}test_a_row_is_kept_until_it_is_in_the_sum_of_its_day[sqlite]",
    ),
    bug(
        "node of a bill's tree passes for a leaf", "bills.py",
        'b"\\x00", b"\\x01", b"\\x02"', 'b"\\x00", b"\\x00", b"\\x02"',
        test=f"{PROOF}test_no_node_passes_for_a_leaf",
    ),
    bug(
        "salt of a leaf is not hashed", "bills.py", "sha256(_LEAF + salt + data)", "sha256(_LEAF + data)",
        test=f"{PROOF}test_every_change_of_a_single_field_is_detected",
    ),
    bug(
        "closed day closed again with late charges", "engine/store/sql/charge.sql",
        "bill_day l WHERE l.ring = :ring)", "bill_day l WHERE l.ring = :ring AND l.last < 0)",
        test=f"{BILLS}test_a_closed_day_never_changes[sqlite]",
    ),
    bug(
        "charges deleted that are in no bill yet", "engine/store/sql/charge.sql",
        "          AND c.id <= (\n              SELECT coalesce(", "          AND c.id >= -(\n              SELECT coalesce(",
        test=f"{BILLS}test_a_charge_set_back_is_kept_until_its_day_is_closed[sqlite]",
    ),
    bug(
        "first charge of each sum left out", "engine/store/charges.py",
        "        for row in rows:\n            add_charges(days", "        for row in rows[1:]:\n            add_charges(days",
    ),
)  # fmt: skip
