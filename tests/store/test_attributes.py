"""Attributes: each one is kept wherever a message goes, and a further one is kept without a further line."""

from __future__ import annotations

import pytest

from airflow_mq.engine.rules.blob import Reference
from airflow_mq.engine.rules.message import PLAIN, Attributes, Posted
from airflow_mq.engine.rules.outcome import Done, check_outcome
from airflow_mq.engine.rules.page import NO_NOTE, Note, Rows
from airflow_mq.engine.rules.weight import Weight
from airflow_mq.engine.store import codec
from airflow_mq.engine.store.attributes import StoredAttributes, notes_of, pack_attributes

#: A value of each.
WHOLE = Attributes(weight=Weight(3, 0), expires=17, headers={"a": "ä"}, attempts=2, arrived=5)
EACH = [pytest.param(PLAIN._replace(**{name: value}), id=name) for name, value in WHOLE._asdict().items()]


def test_the_examples_set_each_attribute() -> None:
    assert all(value and value != empty for value, empty in zip(WHOLE, PLAIN))


@pytest.mark.parametrize("attributes", [*EACH, PLAIN, WHOLE])
def test_each_attribute_is_stored(attributes: Attributes) -> None:
    packed = pack_attributes(attributes)
    assert (StoredAttributes(packed).of(0) if packed else PLAIN) == attributes


@pytest.mark.parametrize("attributes", [*EACH, PLAIN, WHOLE])
def test_a_page_notes_each_attribute_or_counts_it(attributes: Attributes) -> None:
    """A message that returns takes along what its note has, and what is read because the note counts its bytes."""
    note = Note.of(attributes)
    assert note.upon(attributes if note.beside else PLAIN) == attributes


@pytest.mark.parametrize("attributes", [*EACH, PLAIN, WHOLE])
def test_each_attribute_is_stored_with_an_outcome(attributes: Attributes) -> None:
    done = Done(enqueue=(Posted("acme", b"x", attributes), Posted("acme", Reference.of(bytes(32), 9), attributes)))
    assert codec.outcome_of(codec.read_json(codec.write_json(codec.plain_outcome(done)))) == done
    assert check_outcome(done, 1_000) == Done(enqueue=list(done.enqueue))


@pytest.mark.parametrize("attributes", EACH)
def test_each_attribute_of_a_call_is_that_of_messages_without_their_own(attributes: Attributes) -> None:
    assert attributes.over(WHOLE) == WHOLE.over(attributes) == WHOLE
    packed = StoredAttributes(pack_attributes(WHOLE, each={1: attributes}))
    assert packed.of(0) == packed.of(1) == WHOLE
    packed = StoredAttributes(pack_attributes(PLAIN, each={1: attributes}))
    assert (packed.of(0), packed.of(1)) == (PLAIN, attributes)


def test_a_plain_message_is_one_constant() -> None:
    assert Attributes().checked(10) is Attributes.of({}) is PLAIN
    assert pack_attributes(PLAIN, [b"x"]) == b"" and Rows.of_posted(1, Posted("acme", b"x")).notes == {}
    assert notes_of(pack_attributes(PLAIN, each={1: WHOLE}), 3) == {1: Note.of(WHOLE)} and Note.of(PLAIN) == NO_NOTE
