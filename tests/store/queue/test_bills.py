"""Bills: closed days, made by real blocks through the public interface, and verified as a tenant does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from threading import Thread
from typing import Any

import pytest

from airflow_mq import Done, LinearWeigher, MessageQueue, RingConfig, Weight
from airflow_mq.bills import EPOCH, WrongBill, verify
from airflow_mq.engine.queue.bills import close_day
from airflow_mq.engine.queue.inspect.check.charges import _check_bills
from airflow_mq.engine.rules.charging import DAY, Charge
from airflow_mq.engine.rules.errors import ConfigRefused, InvalidInput
from tests.peak import peak_of
from tests.proofs.model.clock import Clock, stopped_clock
from tests.store.queue.conftest import Maker
from tests.store.queue.test_usage import execute
from tests.unit.test_bills import changed, places

TEN = LinearWeigher(Weight(10, 0), Weight(0, 1000))
TARIFF = {
    "currency": "EUR",
    "prices": [{"from": "2026-11-02", "time": "0.15", "size": "0"}],
    "per": "10ms/1B",
    "places": 3,
}
MONTH = date(2026, 11, 1)


@pytest.fixture
def clock() -> Iterator[Clock]:
    with stopped_clock() as clock:
        yield clock


def at(day: int, hour: float = 12, month: int = 11) -> int:
    return (date(2026, month, day) - EPOCH).days * DAY + int(hour * 3_600_000_000)


def use(queue: MessageQueue, *origins: str) -> None:
    queue.enqueue_messages([(origin, b"x") for origin in origins])
    block = queue.blocks.plan(processor_of=lambda origin: "mail")
    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    queue.blocks.settle(block)


def bill(queue: MessageQueue, of: str = "acme", month: date = MONTH) -> dict[str, Any]:
    return json.loads(json.dumps(queue.inspect.bill(of, month)))


def proven(queue: MessageQueue, of: str = "acme", month: date = MONTH) -> dict[str, Any]:
    """Return a bill that its last published header proves."""
    found = bill(queue, of, month)
    assert verify(json.dumps(found), [queue.inspect.bill_headers(month)[-1].hash]).is_proven
    return found


def counts(found: dict[str, Any]) -> dict[str, int]:
    return {day["day"][8:]: sum(entry["messages"] for entry in day["entries"]) for day in found["days"]}


def stored(queue: MessageQueue) -> list[Any]:
    with queue.store.reading() as unit:
        ring = queue.session.ring_id
        return [(day, sorted(unit.bills.leaves_of(ring, day.day))) for day in unit.bills.days(ring)]


def four_days(make_queue: Maker, clock: Clock, ring: str = "test") -> MessageQueue:
    clock.now = at(1)
    queue = make_queue(ring, weigher=TEN, paths=True)
    queue.admin.change_ring(tariff=TARIFF)
    use(queue, "acme/a", "acme/a", "acme/b", "bolt", "cedar/x")
    use(queue, "acme/a")
    clock.now = at(3)
    use(queue, "acme/b", "bolt")
    queue.enqueue_messages("acme/c", [b"x"] * 2)
    queue.service_queues(lambda delivery: Done(used=Weight(25, 1)))
    clock.now = at(4)
    use(queue, "acme/a")
    queue.admin.housekeep()
    return queue


def test_a_tenant_verifies_its_bill_and_sees_no_other_tenant(make_queue: Maker, clock: Clock) -> None:
    queue = four_days(make_queue, clock)
    found = proven(queue)
    assert counts(found) == {"01": 4, "03": 3}
    # No price counts on the first day. On the third one, 10 ms were predicted, and twice 25 ms reported.
    assert found["total"] == {"time": 100, "size": 7, "messages": 7, "costs": {"EUR": "0.900"}}
    assert [day["tariff"] for day in found["days"]] == [None, TARIFF]
    assert [(one["day"], one["leaves"]) for one in found["headers"]] == [
        ("2026-11-01", 3), ("2026-11-02", 0), ("2026-11-03", 2),
    ]  # fmt: skip
    assert "bolt" not in json.dumps(found) and "cedar" not in json.dumps(found)
    assert counts(proven(queue, "bolt")) == {"01": 1, "03": 1} and counts(proven(queue, "nothing")) == {}
    (usage,) = queue.inspect.usage("path", "month", of=None, until=date(2026, 11, 4))[:1]
    assert (usage.name, usage.messages, usage.charged) == ("acme", 7, Weight(100, 7))
    with pytest.raises(InvalidInput, match="no day of 0001-01 is closed"):
        queue.inspect.bill("acme", date(1, 1, 1))
    with pytest.raises(InvalidInput, match="no day of 2026-12 is closed"):
        queue.inspect.bill("acme", date(2026, 12, 1))
    assert queue.check() == []


def test_every_change_of_a_field_of_a_real_bill_is_detected(make_queue: Maker, clock: Clock) -> None:
    queue = four_days(make_queue, clock)
    text, root = json.dumps(bill(queue)), queue.inspect.bill_headers(MONTH)[-1].hash
    tried = 0
    for path in places(json.loads(text)):
        holder: Any = json.loads(text)
        for key in path[:-1]:
            holder = holder[key]
        for value in changed(holder[path[-1]]):
            other = json.loads(text)
            inner: Any = other
            for key in path[:-1]:
                inner = inner[key]
            if value == inner[path[-1]] and type(value) is type(inner[path[-1]]):
                continue
            inner[path[-1]] = value
            with pytest.raises(WrongBill):
                verify(json.dumps(other), [root])
                raise AssertionError(f"{path}: {value!r} was not detected")
            tried += 1
    assert tried > 300


def test_a_bill_of_one_ring_does_not_pass_for_one_of_another(make_queue: Maker, clock: Clock) -> None:
    first, second = (four_days(make_queue, clock, ring) for ring in ("test", "other"))
    text = json.dumps(bill(first))
    assert bill(first)["store"] != bill(second)["store"] and not verify(text).is_proven
    with pytest.raises(WrongBill, match="does not lead to the published header"):
        verify(text, [second.inspect.bill_headers()[-1].hash])
    assert len({day["salt"] for day in bill(first)["days"]}) == 2


def test_a_closed_day_never_changes(make_queue: Maker, clock: Clock) -> None:
    queue = four_days(make_queue, clock)
    before, told = stored(queue), proven(queue)
    queue.admin.housekeep()
    queue.admin.change_ring(tariff={"currency": "USD", "prices": [{"from": "2026-01-01", "time": "9"}]}, paths=False)
    # A clock that was set back: the charge goes to the open day.
    clock.now = at(2)
    use(queue, "acme/a", "acme/a")
    queue.admin.housekeep()
    assert stored(queue) == before and bill(queue) == told
    clock.now = at(5)
    queue.admin.housekeep()
    assert stored(queue)[:3] == before
    assert counts(proven(queue)) == {"01": 4, "03": 3}
    # Without paths, a tenant is a whole origin; three messages: one on this day, two late ones.
    assert counts(proven(queue, "acme/a")) == {"04": 3}
    assert queue.check() == []


def test_a_block_that_ends_late_is_charged_on_the_open_day(make_queue: Maker, clock: Clock) -> None:
    clock.now = at(1)
    queue = make_queue(weigher=TEN)
    use(queue, "acme")
    queue.enqueue_message("acme", b"late")
    block = queue.blocks.plan(processor_of=lambda origin: "mail", lease=3 * 86_400)
    clock.now = at(2)
    queue.admin.housekeep()
    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    queue.blocks.settle(block)
    clock.now = at(3)
    queue.admin.housekeep()
    assert counts(proven(queue)) == {"01": 1, "02": 1} and queue.check() == []


def test_processes_that_close_at_once_close_each_day_once(make_queue: Maker, clock: Clock) -> None:
    clock.now = at(1)
    queue = make_queue(weigher=TEN)
    for day in range(1, 6):
        clock.now = at(day)
        use(queue, "acme", "bolt")
    clock.now = at(6)
    others = [MessageQueue(queue.store, "test") for _ in range(3)]
    threads = [Thread(target=other.admin.housekeep) for other in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts(proven(queue)) == {f"0{day}": 1 for day in range(1, 6)}
    names = [event.name for event in queue.inspect.events(name="DayClosed")]
    assert len(names) == 5 and queue.check() == []


def test_closing_that_is_interrupted_goes_on_later(
    make_queue: Maker, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = four_days(make_queue, clock)
    before = stored(queue)
    clock.now = at(6)
    from airflow_mq.engine.store.events import Events

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Events, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            queue.admin.housekeep()
    assert stored(queue) == before
    queue.admin.housekeep()
    assert counts(proven(queue)) == {"01": 4, "03": 3, "04": 1} and len(stored(queue)) == 5


def test_each_closed_day_is_published_by_an_event(make_queue: Maker, clock: Clock) -> None:
    queue = four_days(make_queue, clock)
    headers = queue.inspect.bill_headers()
    events = queue.inspect.events(name="DayClosed")
    assert [event.id for event in events] == [header.hash for header in headers]
    for event, header in zip(events, headers):
        assert event.detail == f"{header.day}, {header.leaves} leaves, header {header.hash.hex()}"


def test_charges_are_deleted_after_their_day_is_closed(make_queue: Maker, clock: Clock) -> None:
    queue = four_days(make_queue, clock)
    queue.admin.change_ring(keep_ledger=0)
    clock.now = at(20)
    # A service without housekeeping deletes no charge that is in no bill.
    queue.session.forget_all_old()
    with queue.store.reading() as unit:
        left = [*unit.charges.each(queue.session.ring_id)]
    assert [row.at for row in left] == [at(4)]
    queue.admin.housekeep()
    with queue.store.reading() as unit:
        assert [*unit.charges.each(queue.session.ring_id)] == []
    assert counts(proven(queue)) == {"01": 4, "03": 3, "04": 1} and queue.check() == []


def test_a_charge_set_back_is_kept_until_its_day_is_closed(make_queue: Maker, clock: Clock) -> None:
    queue = four_days(make_queue, clock)
    queue.admin.change_ring(keep_ledger=0)
    clock.now = at(2)
    use(queue, "acme/a")
    clock.now = at(20)
    queue.session.forget_all_old()
    with queue.store.reading() as unit:
        assert at(2) in [row.at for row in unit.charges.each(queue.session.ring_id)]
    queue.admin.housekeep()
    assert counts(proven(queue)) == {"01": 4, "03": 3, "04": 2}


@pytest.mark.parametrize("is_first", [False, True])
def test_a_charge_of_a_clock_that_was_ahead_stops_no_bills(make_queue: Maker, clock: Clock, is_first: bool) -> None:
    queue = make_queue("test", weigher=TEN, paths=True) if is_first else four_days(make_queue, clock)
    # The clock is wrong for one block.
    clock.now = at(4, month=12)
    use(queue, "acme/z")
    clock.now = at(5)
    use(queue, "acme/a", "acme/a")
    for day in (6, 7):
        clock.now = at(day)
        queue.admin.housekeep()
    assert counts(proven(queue)) == ({"05": 3} if is_first else {"01": 4, "03": 3, "04": 2, "05": 2})
    usage = queue.inspect.usage(by="origin", per="day")
    assert {(row.period, row.name) for row in usage} >= {("2026-11-05", "acme/a"), ("2026-12-04", "acme/z")}
    with queue.store.reading() as unit:
        assert unit.charges.rolled_up(queue.session.ring_id) == [*unit.charges.each(queue.session.ring_id)][-1].id
    assert queue.check() == []


def test_check_finds_bills_that_differ_from_their_charges(make_queue: Maker, clock: Clock) -> None:
    queue = four_days(make_queue, clock)
    execute(queue, "UPDATE {s}bill_leaf SET place = 1 - place WHERE place < 2")
    assert "its leaves are not those of its root" in str(queue.check())
    execute(queue, "UPDATE {s}bill_leaf SET place = 1 - place WHERE place < 2")
    assert queue.check() == []
    execute(queue, "UPDATE {s}bill_day SET last = last - 1 WHERE leaves = 2")
    assert "they are not its charges" in str(queue.check())
    execute(queue, "UPDATE {s}bill_day SET last = last + 1 WHERE leaves = 2")
    execute(queue, "UPDATE {s}bill_day SET day = day + 100 WHERE leaves = 0")
    assert "does not follow the one of the day before" in str(queue.check())
    execute(queue, "UPDATE {s}bill_day SET day = day - 100 WHERE leaves = 0")


def test_a_tenant_without_a_name_gets_its_bill(make_queue: Maker, clock: Clock) -> None:
    """The first part of each of these paths is empty."""
    queue = make_queue(paths=True)
    clock.now = at(1)
    use(queue, "/acme", "//bolt", "cobalt")
    clock.now = at(2)
    queue.admin.housekeep()
    found = proven(queue, "")
    assert [entry["origin"] for entry in found["days"][0]["entries"]] == ["//bolt", "/acme"]
    assert [row.name for row in queue.inspect.usage("path")] == ["", "cobalt"]
    with pytest.raises(WrongBill, match="invalid tenant 7"):
        verify(json.dumps({**found, "tenant": 7, "days": []}))


def test_months_at_the_ends_of_the_calendar(queue: MessageQueue) -> None:
    for month in (date(1, 1, 1), date(2028, 2, 29), date(9999, 12, 31)):
        assert queue.inspect.bill_headers(month) == []
        with pytest.raises(InvalidInput, match="is closed"):
            queue.inspect.bill("acme", month)


def test_a_tariff_is_checked_when_it_is_set(make_queue: Maker) -> None:
    queue = make_queue()
    with pytest.raises(ConfigRefused, match="invalid tariff"):
        queue.admin.change_ring(tariff={"currency": "EUR", "prices": []})
    with pytest.raises(ConfigRefused, match="invalid tariff"):
        queue.admin.create_ring("other", RingConfig(tariff={"currency": "EUR", "prices": []}))
    assert queue.admin.change_ring(tariff=TARIFF).tariff == TARIFF


@pytest.mark.slow
@pytest.mark.parametrize(("tenants", "closing", "checking"), [(100, 3_000_000, 3_000_000), (1, 8_000_000, 18_000_000)])
def test_days_of_many_charges_are_closed_and_checked_in_little_memory(
    make_queue: Maker, tenants: int, closing: int, checking: int
) -> None:
    """10,000 entries: as objects, they would take more than ten megabytes."""
    queue = make_queue()
    ring, one = queue.session.ring_id, Charge(Weight(5, 100), Weight(5, 100), 7, 1, 100, 1)
    each = 10_000 // tenants
    with queue.session.hold.transaction() as (unit, working_set):
        charges = {(f"tenant-{number:03}", "mail"): one for number in range(tenants)}
        for block in range(each):
            unit.charges.insert(ring, charges, working_set.now - 2 * DAY, block + 1, "dag")
    with queue.session.hold.transaction() as (unit, working_set):
        assert peak_of(lambda: close_day(unit, ring, queue.session.ring, working_set)) < closing
        assert peak_of(lambda: [*_check_bills(unit, ring, queue.config, 0)]) < checking
        assert [*_check_bills(unit, ring, queue.config, 0)] == []
        (closed,) = unit.bills.days(ring)
        leaves = [*unit.bills.leaves_of(ring, closed.day)]
        assert closed.leaves == len(leaves) == tenants and all(leaf.leads_to(closed.header) for leaf in leaves)
        assert [len(json.loads(leaf.data)["entries"]) for leaf in leaves] == [each] * tenants
        unit.connection.execute(f"DELETE FROM {queue.store.prefix}charge")  # type: ignore[attr-defined]
        unit.connection.execute(f"DELETE FROM {queue.store.prefix}bill_leaf")  # type: ignore[attr-defined]
        unit.connection.execute(f"DELETE FROM {queue.store.prefix}bill_day")  # type: ignore[attr-defined]
