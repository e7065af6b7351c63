"""Repository of rings: names, settings, floors and leases."""

from __future__ import annotations

from typing import Any

from ..rules.errors import UnknownRing
from ..rules.nearest import nearest
from .primitives import Repository, as_json
from .rows import RingRow, StateRow

_EXPIRE = {
    "events": "expire_event", "ledger": "expire_ledger", "blocks": "expire_block", "keys": "expire_key",
    "charges": "expire_charge",
}  # fmt: skip


def is_ring_name(name: str) -> bool:
    """Return whether a ring can have this name."""
    return name.isascii() and name.replace("-", "_").isidentifier() and len(name) <= 63


class Rings(Repository):
    """Rings of the store."""

    __slots__ = ()

    def named(self, name: str) -> RingRow:
        """Return a ring, and the database's clock; raise `UnknownRing` if there is none of this name."""
        rows = self.unit.rows("rings", name=name)
        if not rows:
            names = [ring.name for ring in self.all()]
            known, near = ", ".join(map(repr, names)) or "none", nearest(name, names)
            meant = f"did you mean {near!r}?" if near else ""
            if is_ring_name(name):
                meant += f"{' To' if near else 'to'} create it, run `airflow-mq ring create {name}`"
            raise UnknownRing(f"unknown ring {name!r}: the store has {known}; {meant}".removesuffix("; "))
        return RingRow(*rows[0])

    def all(self) -> list[RingRow]:
        """Return all rings by name."""
        return [RingRow(*row) for row in self.unit.rows("rings", name=None)]

    def insert(self, name: str, config: str) -> bool:
        """Create a ring; return whether the name was free."""
        rows = self.unit.rows("insert_ring", name=name, config=config)
        for (ring,) in rows:
            self.unit.run("insert_state", ring=ring)
        return bool(rows)

    def held_config(self, ring: int) -> Any:
        """Return the settings of a ring, and keep others from changing them until the transaction ends."""
        return self.unit.only("hold_config", ring=ring)[0]

    def hold_origins(self, ring: int) -> bool:
        """Keep other senders from adding queues until the end; return whether the transaction sees what they added."""
        return bool(self.unit.only("hold_origins", ring=ring)[0])

    def change(self, ring: int, config: object) -> None:
        """Replace the settings of a ring."""
        self.unit.run("change_ring", ring=ring, config=as_json(config))

    def allow_high(self, ring: int) -> None:
        """Record that a ring receives messages of high priority."""
        self.unit.run("allow_high", ring=ring)

    def state(self, ring: int) -> StateRow:
        """Return the state of a ring for readers, without marks and the token of its lease."""
        return StateRow(*self.unit.only("state", ring=ring))

    def save_state(self, ring: int, state: StateRow) -> None:
        """Write the floors and places of a ring and count the change."""
        self.unit.put(
            "save_state", ring=ring, ticket_floor=state.ticket_floor, look_floor=state.look_floor,
            look_place=state.look_place, high_place=state.high_place, debt=state.debt, marks=as_json(state.marks),
        )  # fmt: skip

    def take_lease(self, ring: int, token: bytes, until: int, holder: str) -> None:
        """Lease a ring to a process."""
        self.unit.put("take_lease", ring=ring, token=token, until=until, holder=holder)

    def want_lease(self, ring: int) -> None:
        """Ask the process that leases a ring to give the lease back."""
        self.unit.put("want_lease", ring=ring)

    def renew_lease(self, ring: int, token: bytes, until: int) -> None:
        """Extend a lease, also an expired one, unless another process took the ring since."""
        self.unit.put("change_lease", ring=ring, token=token, next=token, until=until, holder=None)

    def drop_lease(self, ring: int, token: bytes | None, holder: str = "") -> None:
        """End a lease, unless another process took the ring since; name its holder if that did not end it itself."""
        self.unit.put("change_lease", ring=ring, token=token, next=None, until=0, holder=holder)

    def latest_id(self) -> int:
        """Return the last id drawn in the store."""
        return int(self.unit.rows("last_id")[0][0])

    def expire(self, kind: str, ring: int, after: int, before: int, limit: int) -> int:
        """Delete at most `limit` rows of a ring after a time, and at or before another; return their number.

        :param kind: events, ledger, blocks (by their ends), keys (by their uses), or charges (those in sums of days)
        """
        return self.unit.run(_EXPIRE[kind], ring=ring, after=after, before=before, limit=limit)
