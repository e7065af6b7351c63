"""Temporary stores and assertions for tests of one's own code: they accept and refuse what a store does."""

from __future__ import annotations

import pytest

from airflow_mq.errors import AddressRefused, NotPermitted
from airflow_mq.testing import assert_ring, scratch_queue, scratch_store


def test_an_unexpected_ring_is_named() -> None:
    with scratch_queue() as queue:
        queue.enqueue_messages([("acme", b"1"), ("birch", b"2")])
        assert_ring(queue, ["acme", "birch"])
        with pytest.raises(AssertionError, match=r"begins with \['acme', 'birch'\], not \['acme'\]"):
            assert_ring(queue, ["acme"])


@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_senders_are_restricted_as_by_the_given_address(store: str, request: pytest.FixtureRequest) -> None:
    uri = "sqlite:///store.db" if store == "sqlite" else request.getfixturevalue("pg_uri")
    with scratch_queue(f"{uri}?origins=acme&priority=regular") as queue:
        queue.enqueue_message("acme", b"1")
        with pytest.raises(NotPermitted):
            queue.enqueue_message("birch", b"2")
        with pytest.raises(NotPermitted):
            queue.enqueue_message("acme", b"3", priority="high")


def test_an_address_that_no_store_has_is_refused() -> None:
    with pytest.raises(AddressRefused, match="takes no parameters but"), scratch_store("sqlite:///store.db?ring=a"):
        pass
