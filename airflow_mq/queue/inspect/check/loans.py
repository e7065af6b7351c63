"""Check of loans: transferred messages whose bytes stay in the inbox row of their lender."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from ....core.invariants import Violation
from ....core.page import Page
from ....store.inbox import CheckedLoanRow
from ....store.rows import StoredInboxRow, notes_of


class Loans:
    """Loans of a ring, given or taken."""

    def __init__(self, ring: int, rows: Sequence[CheckedLoanRow]) -> None:
        self.ring = ring
        self.entries = rows
        taken = [loan for loan, *_ in self.entries if loan.ring == ring]
        given = [loan for loan, *_ in self.entries if loan.lender_ring == ring]
        #: Inbox rows of this ring that borrow bytes.
        self.borrowed = {(loan.origin, loan.row_id) for loan in taken}
        #: Inbox rows of this ring that lend bytes.
        self.lent = {(loan.lender_origin, loan.lender_mail) for loan in given}
        #: Inbox rows of this ring that exist only for their borrowers.
        self.released = {(loan.lender_origin, loan.lender_mail) for loan in given if loan.let_go}

    def check(self) -> Iterator[Violation]:
        """Check both ends of each loan."""
        for loan, start, size, whole in self.entries:
            where = f"inbox row {loan.row_id} of {loan.origin!r} in ring {loan.ring}"
            if size is None:
                yield Violation(where, "it is missing, but its loan is stored")
            elif whole is None:
                yield Violation(
                    where, f"inbox row {loan.lender_mail} of {loan.lender_origin!r} is missing, and its bytes with it"
                )
            elif start + size > whole:
                yield Violation(where, f"its bytes end beyond those of inbox row {loan.lender_mail}")

    def check_pages(
        self, origin: str, pages: Mapping[int, Page], uncut: Collection[int], borrowing: Collection[int]
    ) -> Iterator[Violation]:
        """Check that the pages of an origin record the loans of their messages."""
        where = f"book {origin!r}"
        for id_ in borrowing:
            if (origin, id_) not in self.borrowed:
                yield Violation(where, f"inbox row {id_} has no bytes and no loan")
        cut: set[int] = set()
        for page in pages.values():
            row_ids = set(page.slices.row_ids)
            cut |= row_ids
            if not page.has_loans and any((origin, id_) in self.borrowed for id_ in row_ids):
                yield Violation(where, f"page {page.index} has borrowed messages, but is not marked so")
        for whose, id_ in self.released:
            if whose == origin and (id_ in cut or id_ in uncut):
                yield Violation(where, f"inbox row {id_} is kept for borrowers only, but its own queue needs it")
        for whose, id_ in self.lent - self.released:
            if whose == origin and id_ not in cut:
                yield Violation(where, f"inbox row {id_} is lent and in no page; nothing would ever delete it")


def borrows(row: StoredInboxRow) -> bool:
    """Return whether an inbox row has no bytes of its own."""
    return any(note.loan for note in notes_of(row.attributes, row.items).values())
