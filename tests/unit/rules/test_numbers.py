"""Numbers that people write: ASCII digits, and no more of them than a number has."""

from __future__ import annotations

import pytest

from airflow_mq.engine.rules.errors import InvalidOrigin
from airflow_mq.engine.rules.events import Event, Fate
from airflow_mq.engine.rules.message import MOST_NUMBER, Address, read_number

STRANGE = ["²", "٣", "\uff13", "", "-1", "+1", " 1", "1_0", "1" * 20, "1" * 5_000, str(MOST_NUMBER + 1)]


@pytest.mark.parametrize("text", STRANGE)
def test_what_is_no_number(text: str) -> None:
    assert read_number(text) is None
    for address in (f"acme:{text}:0", f"acme:0:{text}", f"acme:0:{text}:high"):
        with pytest.raises(InvalidOrigin, match="invalid address"):
            Address.parse(address)


def test_numbers() -> None:
    assert (read_number("0"), read_number("007"), read_number(str(MOST_NUMBER))) == (0, 7, MOST_NUMBER)
    assert read_number("8", 7) is None
    assert Address.parse(f"a:b:{MOST_NUMBER}:0") == Address("a:b", MOST_NUMBER, 0)


@pytest.mark.parametrize("digits", ["٣", "1" * 5_000])
def test_what_a_person_wrote_as_the_reason_is_no_place(digits: str) -> None:
    moved = Event("Requeued", Fate.REQUEUED, "a", 0, 0, detail=f"because; goes on at {digits}:1 (me)")
    back = Event("Returned", Fate.RETURNED, "a", 0, 0, detail=f"untried behind it up to {digits}:1")
    assert moved.moved_to is None and back.untried_up_to is None
