"""A shelf over a database: loads in slices, remembers what changed, writes it back at once.

`memory` is all that it remembers; `known` what it knows of one origin. Each of the others adds a part: `groups` of
origins and `books`, the `ring` they stand in, `pages`, the `mail` that is in no page yet, `payloads`, messages that
are `posting` themselves, `forgetting` what was only planned, and `saving`.
"""

from __future__ import annotations

from .forgetting import Forgetting
from .posting import Posting
from .ring import MEET_IN_ALL, Slices
from .saving import Saving
from .tickets import LEAST_REGULAR, level_of, ticket_of


class SqlShelf(Slices, Posting, Forgetting, Saving):
    """The working set of one operation on one ring."""


__all__ = ["LEAST_REGULAR", "MEET_IN_ALL", "SqlShelf", "level_of", "ticket_of"]
