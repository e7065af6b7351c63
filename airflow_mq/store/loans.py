"""Repository of loans: inbox rows that borrow the bytes of another row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .inbox import Inbox
from .primitives import Repository
from .rows import LoanRow


class LenderRow(NamedTuple):
    """The row that has the bytes of a borrower, and where they start in it."""

    ring: int
    origin: str
    row_id: int
    start: int
    #: Whether no page of the lender needs its row.
    let_go: bool


class CheckedLoanRow(NamedTuple):
    """A loan, where its bytes start, and the sizes of both rows; no size if a row is missing."""

    loan: LoanRow
    start: int
    size: int | None
    lender_size: int | None


class Loans(Repository):
    """Loans, which may lead from one ring to another."""

    __slots__ = ()

    def insert(self, ring: int, origin: str, size: int, attributes: bytes, lender: LenderRow) -> None:
        """Write a row without bytes of its own, and its loan."""
        id_ = self.unit.fresh_ids(1)[0]
        self.unit.run("insert_borrowed", id=id_, size=size, ring=ring, origin=origin, attributes=attributes)
        self.unit.run(
            "insert_loan", ring=ring, origin=origin, id=id_, lender_ring=lender.ring, lender_origin=lender.origin,
            lender_mail=lender.row_id, start=lender.start, let_go=lender.let_go,
        )  # fmt: skip

    def lender(self, ring: int, origin: str, id_: int) -> LenderRow | None:
        """Return from which row a row borrows."""
        rows = self.unit.rows("loan_of", ring=ring, origin=origin, id=id_)
        return LenderRow(*rows[0]) if rows else None

    def all(self, ring: int) -> list[CheckedLoanRow]:
        """Return all loans of a ring, given or taken."""
        return [CheckedLoanRow(LoanRow(*row[:7]), *row[7:]) for row in self.unit.rows("all_loans", ring=ring)]

    def heaps(self, ring: int, keys: Sequence[tuple[str, int]]) -> list[tuple[str, int, bytes]]:
        """Return the bytes that rows borrow: queue, id, bytes."""
        return self._read("borrowed_heaps", ("origin", "id"), keys, ring=ring)

    def release(self, ring: int, keys: Sequence[tuple[str, int, int]]) -> None:
        """Delete rows with loans that no page needs: lenders stay until their last borrower is gone."""
        if not keys:
            return
        inbox = Inbox(self.unit)
        loans = {
            LoanRow(*row) for row in self._read("loans_around", ("origin", "id"), [k[:2] for k in keys], ring=ring)
        }
        rows = {(ring, origin, id_) for origin, id_, _ in keys}
        gone = {loan for loan in loans if loan[:3] in rows}
        lending = {loan.lender for loan in loans - gone}
        self._write("delete_loan", ("origin", "id"), [(loan.origin, loan.row_id) for loan in sorted(gone)], ring=ring)
        lent = [key for key in keys if (ring, *key[:2]) in lending]
        self._write("let_go", ("origin", "id", "page"), lent, ring=ring)
        inbox.delete_shared(ring, [key for key in keys if key not in lent])
        for lender_ring, origin, id_ in sorted({loan.lender for loan in gone if loan.let_go}):
            lender = lender_ring, origin, id_
            if lender not in lending:
                inbox.delete(lender_ring, [(origin, id_)])
            elif not all(loan.let_go for loan in loans - gone if loan.lender == lender):
                self.unit.run("let_go_for_all", lender_ring=lender_ring, lender_origin=origin, lender_mail=id_)
