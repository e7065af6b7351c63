"""Verdicts of recorded ends are final: nothing that changes before they are applied changes one of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from airflow_mq import Done, MessageQueue, RingConfig, Weight
from airflow_mq.engine.queue.values import Report
from airflow_mq.engine.rules.errors import InFlight
from airflow_mq.engine.rules.settle import FATES
from airflow_mq.engine.store import parse, upgrade
from tests.holding import drop_lease, take_lease
from tests.proofs.model.clock import Clock

from .test_end_parts import LIMIT, RINGS, TOKEN, a_ring, books, ends

pytestmark = pytest.mark.concurrency

#: Changes of everything that no rule refuses while an end is left.
CHANGES: dict[str, Callable[[MessageQueue], object]] = {
    "most": lambda queue: [
        queue.admin.set_origin(name, most=Weight(1, 1)) for name in ("a/x", "a/y", "b", "a", "sent")
    ],
    "no most": lambda queue: [queue.admin.set_origin(name, unset=["most"]) for name in ("a/x", "a/y", "b")],
    "least": lambda queue: [queue.admin.set_origin(name, least=Weight(1, 1)) for name in ("a/x", "b")],
    "share": lambda queue: [queue.admin.set_origin(name, share=7) for name in ("a/x", "a/y", "b", "a")],
    "relaxed": lambda queue: [queue.admin.set_origin(name, ordered=False) for name in ("a/x", "a/y", "b")],
    "ordered": lambda queue: [queue.admin.set_origin(name, ordered=True) for name in ("a/x", "a/y", "b")],
    "pause": lambda queue: [queue.admin.pause(name) for name in ("a/x", "a/y", "b")],
    "pause below": lambda queue: queue.config.paths and queue.admin.pause("a", below=True),
    "send": lambda queue: [queue.enqueue_message(name, b"late") for name in ("a/x", "b")],
    "send high": lambda queue: queue.enqueue_message("b", b"high", priority="high"),
}


def verdicts(queue: MessageQueue) -> dict[str, Any]:
    """Return what an end decides, without deficits: these follow the present shares."""
    found = books(queue)
    return {"events": found["events"], "set_aside": found["set_aside"]}


@pytest.mark.sqlite_first
@pytest.mark.parametrize("kind", list(RINGS))
@pytest.mark.parametrize("change", [*CHANGES, "time", "applied by a sender"])
def test_verdicts_are_final(store_uri: str, kind: str, change: str, clock: Clock) -> None:
    upgrade(parse(store_uri))
    with a_ring(store_uri, "first", kind, most=change == "no most") as (holder, other, _):
        drop_lease(holder.session, TOKEN)
        other.session.hold.apply_soon()
        expected = verdicts(other)
    with a_ring(store_uri, "second", kind, most=change == "no most") as (holder, other, block):
        recorded, at = other.blocks.settle(block), clock.now
        if change == "time":
            clock.advance(20)
        elif change in CHANGES:
            CHANGES[change](other)
        assert other.check() == []
        # No setting of the ring changes meanwhile.
        with pytest.raises(InFlight):
            drop_lease(holder.session, TOKEN)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(type(holder.session.settler), "apply_ends", lambda self: None)
                holder.admin.change_ring(max_attempts=1)
        applier = other
        if change == "applied by a sender":
            joint = "&" if "?" in store_uri else "?"
            applier = MessageQueue(f"{store_uri}{joint}origins=zzz", "second", actor="stranger")
        applier.session.hold.apply_soon()
        assert ends(other) == 0
        found = verdicts(other)
        assert [event for event in found["events"] if event[0] != "Enqueued"] == expected["events"]
        assert found["set_aside"] == expected["set_aside"]
        assert other.blocks.settle(block) == recorded
        assert {event.at for event in other.inspect.events(block=block.id)} == {at / 1_000_000}
        assert other.check() == []
        if applier is not other:
            applier.close()


def test_an_execution_by_hand_keeps_its_actor(store_uri: str) -> None:
    """The actor that applies an end did not decide."""
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as admin:
        admin.admin.create_ring("r", RingConfig(service_weight=LIMIT))
    with MessageQueue(store_uri, "r", actor="holder") as holder, MessageQueue(store_uri, "r", actor="ada") as ada:
        holder.enqueue_message("a", b"heavy", weight=Weight(5_000, 0))
        holder.service_queues(lambda delivery: None)
        (aside,) = ada.set_aside.list()
        block = ada.blocks.plan_overweight(aside.address, Weight(10_000, 1 << 20))
        take_lease(holder.session, TOKEN)
        ada.blocks.report(block, [Report("a", aside.address.page, aside.address.index, aside.address.index, Done())])
        assert ada.blocks.settle(block).processed == 1
        drop_lease(holder.session, TOKEN)
        holder.session.hold.apply_soon()
        (executed,) = ada.inspect.events(name="Executed")
        assert executed.detail == "ada"
        assert ada.check() == []


def test_an_end_that_gives_other_verdicts_is_set_apart(store_uri: str) -> None:
    """Nothing of it is applied, and `check` reports counts that do not fit the claims."""
    upgrade(parse(store_uri))
    with a_ring(store_uri, "r", "ordered") as (holder, other, block):
        with other.session.store.writing() as unit:
            (end,) = unit.blocks.ends(other.session.ring_id)
            terms = end.terms_json
            one = FATES.index("processed")
            terms["verdicts"][0][one] -= 1
            terms["verdicts"][0][FATES.index("failed")] += 1
            unit.blocks.advance_end(
                other.session.ring_id, end.row.id, 0, bytes(unit.blocks.claims(end.row.id)[0].data),
                json.loads(json.dumps(terms)),
            )  # fmt: skip
        in_flight = sum(state.in_flight for state in other.inspect.queues())
        assert in_flight == block.messages
        drop_lease(holder.session, TOKEN)
        assert [claim.origin for claim in other.blocks.plan().claims] == ["c"]
        ((number, problem),) = other.blocks.unapplied()
        assert (number, "other verdicts than recorded" in problem) == (block.id, True)
        with other.session.store.writing() as unit:
            unit.blocks.advance_end(
                other.session.ring_id, end.row.id, 0, bytes(unit.blocks.claims(end.row.id)[0].data),
                {**terms, "verdicts": [[0] * len(FATES), *terms["verdicts"][1:]]},
            )  # fmt: skip
        assert any("messages of a/x a verdict" in str(one).replace("'", "") for one in other.check())
