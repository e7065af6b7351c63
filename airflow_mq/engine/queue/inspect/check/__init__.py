"""Checks of everything that is stored; they write nothing.

    ring       its order, books, pages, groups and claims
    inboxes    stranded rows, and their repair
    charges    charges, by events, blocks and the ledger
    payloads   external payloads, and the messages that refer to them

`rules.invariants` defines the invariants of a single book.
"""

from __future__ import annotations
