"""Usage: sums of charges by day, which outlive their rows, and the reports over both."""

from __future__ import annotations

import re
from datetime import date, datetime, timezone
from decimal import Decimal
from fractions import Fraction
from threading import Thread

import pytest

from airflow_mq import LinearWeigher, MessageQueue, Tariff, Weight
from airflow_mq.engine.queue.inspect.usage import Usage
from airflow_mq.engine.queue.session import RingSession
from airflow_mq.engine.rules.charging import DAY
from airflow_mq.engine.rules.errors import ConfigRefused, InvalidInput
from airflow_mq.engine.store import charges
from airflow_mq.engine.store.codec import pack_charges
from tests.store.queue.conftest import Maker
from tests.store.queue.test_charging import rows

TEN = LinearWeigher(Weight(10, 0), Weight(0, 1000))
SERVER = "DAG 'orders' of Airflow 'west', task 'plan'"
PRICES = {"currency": "EUR", "prices": [{"from": "2026-01-01", "time": "3.6", "size": "0"}]}


def execute(queue: MessageQueue, text: str) -> None:
    with queue.store.writing() as unit:
        unit.connection.execute(text.replace("{s}", queue.store.prefix))


def use(queue: MessageQueue, day: date, messages: dict[str, int], processor: str = "mail") -> None:
    """Process messages of origins, on a day."""
    queue.enqueue_messages([(origin, b"x") for origin, count in messages.items() for _ in range(count)])
    block = queue.blocks.plan(processor_of=lambda origin: processor, server=SERVER)
    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    queue.blocks.settle(block)
    at = (day - date(1970, 1, 1)).days * DAY + DAY // 2
    for table in ("charge", "event"):
        execute(queue, f"UPDATE {{s}}{table} SET at = {at} WHERE block = {block.id}")
    execute(queue, f"UPDATE {{s}}block SET ended_at = {at} WHERE number = {block.id}")


def rolled_up(queue: MessageQueue) -> int:
    with queue.store.reading() as unit:
        return unit.charges.rolled_up(queue.session.ring_id)


def today() -> date:
    return datetime.now(timezone.utc).date()


def days_ago(days: int) -> date:
    return date.fromordinal(today().toordinal() - days)


def test_usage_is_summed_by_name_and_period(make_queue: Maker) -> None:
    queue = make_queue(order="rotation", weigher=TEN)
    first, second = days_ago(3), days_ago(2)
    use(queue, first, {"acme/a": 2, "acme/b": 1, "birch": 1})
    use(queue, second, {"acme/a": 1}, "orders")
    assert queue.inspect.usage() == [
        Usage(str(day), name, Weight(10 * count, count), Weight(10 * count, count), 0.0, count, count, count, 0)
        for day, name, count in (
            (first, "acme/a", 2), (first, "acme/b", 1), (first, "birch", 1), (second, "acme/a", 1),
        )
    ]  # fmt: skip
    names = {
        by: [(one.name, one.messages) for one in queue.inspect.usage(by, since=first, until=second)]
        for by in ("path", "processor", "dag")
    }
    assert names == {"path": [("acme", 3), ("birch", 1)], "processor": [("mail", 4)], "dag": [("orders", 4)]}
    assert [(one.name, one.messages) for one in queue.inspect.usage("path", of="acme", until=second)] == [
        ("acme/a", 2), ("acme/b", 1),
    ]  # fmt: skip
    assert [one.name for one in queue.inspect.usage("path", of="birch")] == ["birch"]
    assert [one.period for one in queue.inspect.usage(since=second)] == [str(second)]
    months = queue.inspect.usage("processor", "month")
    assert sum(one.messages for one in months) == 5 and {len(one.period) for one in months} == {7}
    for wrong in ({"by": "queue"}, {"per": "week"}):
        with pytest.raises(InvalidInput, match="expected one of"):
            queue.inspect.usage(**wrong)  # type: ignore[arg-type]


def test_a_report_is_read_day_by_day_up_to_its_rows(make_queue: Maker) -> None:
    queue = make_queue(order="rotation", weigher=TEN)
    for day in (6, 5, 4):
        use(queue, days_ago(day), {"acme": 2})
    queue.admin.housekeep()
    statements: list[str] = []
    queue.store.probe = statements.append
    try:
        assert len(queue.inspect.usage(most=3)) == 3
        # A probe may end the reading before each day, and before the last one, which finds none.
        assert statements.count("usage_days") == 4
        with pytest.raises(InvalidInput, match="more than 2 rows: choose a shorter time"):
            queue.inspect.usage(most=2)
    finally:
        queue.store.probe = None


def test_sums_of_closed_days_replace_their_rows_in_reports(make_queue: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charges, "ROWS", 2)
    queue = make_queue(order="rotation", weigher=TEN)
    for day in (40, 5, 5, 5, 4, 0):
        use(queue, days_ago(day), {"acme": 1, "birch": 2})
    before, last = queue.inspect.usage(), rows(queue)[-1]
    queue.admin.housekeep()
    with queue.store.reading() as unit:
        assert len(dict(unit.charges.days(queue.session.ring_id, 0, 1 << 30))) == 3
    assert rolled_up(queue) == rows(queue)[-2].id
    # The first row is older than the ledger is kept.
    assert len(rows(queue)) == 5 and rows(queue)[-1] == last
    assert queue.inspect.usage() == before and queue.check() == []
    # A recorded end that is applied late counts for its day.
    use(queue, days_ago(5), {"acme": 7})
    (acme,) = [one for one in queue.inspect.usage() if (one.period, one.name) == (str(days_ago(5)), "acme")]
    assert acme.messages == 10
    execute(queue, f"UPDATE {{s}}charge SET at = at - {DAY}")
    execute(queue, f"UPDATE {{s}}event SET at = at - {DAY}")
    execute(queue, f"UPDATE {{s}}block SET ended_at = ended_at - {DAY}")
    after = queue.inspect.usage()
    queue.session.forget_all_old()
    assert queue.inspect.usage() == after
    assert rolled_up(queue) == rows(queue)[-1].id
    execute(queue, "DELETE FROM {s}charge")
    assert queue.inspect.usage() == after


def test_a_row_is_kept_until_it_is_in_the_sum_of_its_day(make_queue: Maker) -> None:
    queue = make_queue(order="rotation", keep_ledger=0)
    use(queue, days_ago(0), {"acme": 1})
    use(queue, days_ago(3), {"acme": 1})
    queue.admin.housekeep()
    # The row of an open day comes first, and neither is in a sum.
    assert len(rows(queue)) == 2
    execute(queue, f"UPDATE {{s}}charge SET at = at - {3 * DAY}")
    before = queue.inspect.usage()
    queue.admin.housekeep()
    assert rows(queue) == [] and queue.inspect.usage() == before


def test_processes_that_roll_up_at_once_count_each_row_once(make_queue: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charges, "ROWS", 1)
    queue = make_queue(order="rotation")
    for day in (9, 8, 8, 7, 7, 7, 6, 5):
        use(queue, days_ago(day), {"acme": 1, "birch": 1})
    before = queue.inspect.usage()
    sessions = [RingSession(queue.store, "test") for _ in range(3)]
    threads = [Thread(target=session.forget_all_old) for session in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert queue.inspect.usage() == before
    assert rolled_up(queue) == rows(queue)[-1].id


def test_check_compares_the_sums_of_days_with_their_rows(make_queue: Maker) -> None:
    queue = make_queue(order="rotation", weigher=TEN)
    for day in (6, 5, 4):
        use(queue, days_ago(day), {"acme": 2})
    queue.admin.housekeep()
    with queue.store.reading() as unit:
        days = dict(unit.charges.days(queue.session.ring_id, 0, 1 << 30))
        last = unit.charges.rolled_up(queue.session.ring_id)
    for day, sums in days.items():
        # Rows of the first day may have been deleted under an earlier setting: its sums may be larger.
        for more in (1,) if day > min(days) else (-1,):
            for stored in ({key: one._replace(attempts=one.attempts + more) for key, one in sums.items()}, sums):
                with queue.store.writing() as unit:
                    unit.run("save_usage", ring=queue.session.ring_id, day=day, last=last, data=pack_charges(stored))
                found = [str(violation) for violation in queue.check()]
                assert found == (
                    [] if stored is sums else [f"usage of day {day}: its sums are not those of its charges"]
                )


# Tariffs.


def test_a_tariff_prices_each_day_exactly_and_rounds_once(make_queue: Maker) -> None:
    queue = make_queue(order="rotation", weigher=TEN)
    for day in (date(2026, 3, 30), date(2026, 3, 31), date(2026, 4, 1)):
        use(queue, day, {"acme": 1})
    prices = [
        {"from": "2026-03-31", "time": "0.5", "size": "0.001"}, {"from": "2026-01-01", "time": "0.1", "size": "0"},
    ]  # fmt: skip
    tariff = Tariff.from_json({"currency": "EUR", "prices": prices, "per": "10ms/1B", "places": 3})
    march, april = queue.inspect.usage(per="month", tariff=tariff)
    assert (march.cost, april.cost, april.currency) == (Decimal("0.601"), Decimal("0.501"), "EUR")
    with pytest.raises(InvalidInput, match="no price on 2026-03-30"):
        queue.inspect.usage(tariff=Tariff.from_json({"currency": "EUR", "prices": prices[:1]}))


def test_a_cost_is_exact_until_it_is_rounded() -> None:
    tariff = Tariff.from_json({"currency": "EUR", "prices": [{"from": "2026-01-01", "time": "0.12", "size": "0.02"}]})
    cost = tariff.cost(date(2026, 5, 1), Weight(1, 1))
    assert cost == Fraction(12, 100 * 3_600_000) + Fraction(2, 100 << 30)
    assert [tariff.rounded(Fraction(cents, 1000)) for cents in (5, 15, 25)] == [
        Decimal("0.00"), Decimal("0.02"), Decimal("0.02"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [
        None, {}, {"currency": "EUR", "prices": []}, {**PRICES, "more": 1}, {**PRICES, "places": "2"},
        {**PRICES, "per": "1h/0B"}, {**PRICES, "prices": [{"from": "2026-13-01"}]},
        {**PRICES, "prices": [{"from": "2026-01-01", "time": 0.1}]},
        {**PRICES, "prices": [{"from": "2026-01-01", "time": "-1"}]},
        {**PRICES, "prices": [{"from": "2026-01-01", "time": "NaN"}]},
        {**PRICES, "prices": [{"from": "2026-01-01", "time": "1e300000"}]},
        {**PRICES, "prices": [{"from": "2026-01-01", "time": "1e-300000"}]},
        {**PRICES, "prices": [{"from": "20260101", "time": "1"}]},
        {**PRICES, "places": 7},
        {**PRICES, "currency": None},
        {**PRICES, "prices": [{"from": "2026-01-01", "hour": "1"}]},
        {**PRICES, "prices": [{"from": "2026-01-01"}, {"from": "2026-01-01"}]},
    ],
)  # fmt: skip
def test_an_invalid_tariff_is_refused(wrong: object) -> None:
    with pytest.raises(ConfigRefused, match="invalid tariff"):
        Tariff.from_json(wrong)


def test_a_large_cost_keeps_all_its_digits() -> None:
    tariff = Tariff.from_json(
        {**PRICES, "per": "1ms/1B", "prices": [{"from": "2026-01-01", "time": "1000000000000001"}]}
    )
    cost = tariff.rounded(tariff.cost(date(2026, 1, 1), Weight(10**16 + 1, 0)))
    assert cost == (10**15 + 1) * (10**16 + 1) and str(cost) == "10000000000000011000000000000001.00"


@pytest.mark.parametrize("places", range(7))
def test_a_small_cost_has_no_exponent(places: int) -> None:
    tariff = Tariff.from_json({**PRICES, "places": places})
    for cost in (Fraction(0), Fraction(1, 10**places)):
        assert re.fullmatch(r"[01](\.0*1?)?", str(tariff.rounded(cost)))
