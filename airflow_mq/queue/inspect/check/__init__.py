"""What must be true of what is stored, looked over from end to end. Writes nothing.

    ring       its order, its books and pages, its groups, and what blocks hold
    blobs      external payloads, and who refers to them
    loans      what was handed on without its bytes

What must be true of one book is a rule, and is in `core.invariants`.
"""

from __future__ import annotations
