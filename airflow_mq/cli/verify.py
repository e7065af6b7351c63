"""`verify`: recompute a tenant's bill, without a store."""

from __future__ import annotations

from argparse import Namespace

from ..bills import verify as verified
from ..words import many
from .arguments import hexadecimal
from .command import UsageError, command, option
from .session import Session


@command(
    option("file FILE", "the bill, as `report bill` wrote it"),
    option("--root HEX", "a published header that you kept; may be repeated", hexadecimal, action="append"),
    example="$ verify bill.json --root 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
)
def verify(session: Session, args: Namespace) -> bool:
    """Recompute a bill from its file alone, and prove it by a published header.

    Exit code 0 if a header that you kept proves it, 1 if it is consistent and not proven, 3 if it is wrong. A proof
    shows that nothing has changed since the publication. It does not show that the measurements were true.
    """
    try:
        with open(args.file, "rb") as file:
            text = file.read()
    except OSError as error:
        raise UsageError(f"the bill cannot be read: {error.strerror}") from None
    found = verified(text, args.root or ())
    size = f"{many(found.total['messages'], 'message')} on {many(found.days, 'day')}"
    prices = "".join(f", {cost} {currency}" for currency, cost in sorted(found.total["costs"].items()))
    how = "proven" if found.is_proven else "consistent, not proven: pass the last published header as --root"
    session.out.answer(found._asdict(), f"bill of {found.tenant} for {found.month}: {size}{prices}; {how}")
    return found.is_proven
