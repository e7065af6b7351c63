"""Registers: which values a setting may have, while several processes change it."""

from __future__ import annotations


class Write:
    """A change of a setting: its value, and the turns at which it began and ended."""

    def __init__(self, value: object, began: int) -> None:
        self.value, self.began, self.ended = value, began, float("inf")


class Register:
    """A setting, with the changes of which any may be the last one."""

    def __init__(self, value: object) -> None:
        first = Write(value, -1)
        first.ended = -1
        self._writes = [first]

    def begin(self, value: object, turn: int) -> Write:
        """Begin a change."""
        write = Write(value, turn)
        self._writes.append(write)
        return write

    def undo(self, write: Write) -> None:
        """End a change that was refused."""
        self._writes.remove(write)

    def acknowledge(self, write: Write) -> None:
        """End a change that counts: those that had ended before it began are past."""
        self._writes = [one for one in self._writes if one is write or one.ended >= write.began]

    def permits(self, value: object) -> bool:
        """Return whether the setting may have this value now."""
        return any(one.value == value for one in self._writes)
