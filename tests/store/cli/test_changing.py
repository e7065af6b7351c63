"""Changes of settings are patches, and every command that takes a block takes its number."""

from __future__ import annotations

import json

import pytest

from airflow_mq import MessageQueue, RingConfig, Weight
from airflow_mq.engine.rules.config import DAY
from airflow_mq.engine.rules.errors import ConfigRefused, UnknownBlock
from tests.store.cli.conftest import Terminal


def test_a_setting_of_an_origin_stays_until_it_is_named(mq: Terminal) -> None:
    assert mq("queue", "set", "acme", "--share", "3").out == "acme: share 1 → 3\n"
    assert mq("queue", "set", "acme", "--most", "10/10").out == "acme: most unset → 10 ms · 10 B\n"
    shown = mq.json("queue", "show", "acme")
    assert (shown["share"], shown["most"]) == (3, {"time": 10, "size": 10})
    assert mq.json("queue", "set", "acme", "--unset", "share", "--no-ordered") == {
        "origin": "acme",
        "changed": {"share": {"was": 3, "is": 1}, "ordered": {"was": None, "is": False}},
    }
    assert mq("queue", "set", "acme", "--unset", "share").out == "acme: nothing changed\n"
    assert (
        mq("queue", "set", "acme", "--unset", "all").out == "acme: most 10 ms · 10 B → unset, ordered false → unset\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["queue", "set", "acme"], "no setting"),
        (["queue", "set", "acme", "--share", "2", "--unset", "share"], "both set and unset"),
        (["queue", "set", "acme", "--unset", "all", "--share", "2"], "both set and unset"),
        (["queue", "set", "acme", "--unset", "shar"], "shar"),
        (["ring", "change", "--unset", "backof"], "did you mean backoff?"),
        (["ring", "change", "--set", "backof=1"], "did you mean backoff?"),
        (["ring", "change", "--set", 'costs={"reap_pag": [1, 0]}'], "did you mean reap_page?"),
        (["ring", "change", "--backoff", "1", "--unset", "backoff"], "both set and unset"),
        (["ring", "change", "--service-weight", "0/1"], "every message would be set aside"),
        (["pause"], "did you mean queue pause?"),
        (["block", "show", "12x"], "expected its number or its token"),
    ],
)
def test_a_refused_change_names_what_was_meant(mq: Terminal, words: list[str], error: str) -> None:
    mq("queue", "set", "acme", "--least", "5/5")
    before = mq("ring", "show").out
    assert error in mq(*words, code=3 if "12x" in words else 2).err
    assert mq("ring", "show").out == before
    assert mq.json("queue", "show", "acme")["least"] == {"time": 5, "size": 5}


def test_a_bound_is_checked_against_the_settings_that_stay(mq: Terminal) -> None:
    mq("queue", "set", "acme", "--least", "5/5")
    assert (
        "cannot be promised 5 ms · 5 B and get 1 ms · 1 B at most"
        in mq("queue", "set", "acme", "--most", "1/1", code=2).err
    )


def test_a_change_of_a_ring_prints_old_and_new_values(mq: Terminal) -> None:
    assert mq("ring", "change", "--backoff", "3", "--max-attempts", "5").out == (
        "ring default: max_attempts no limit → 5, backoff 0 ms → 3 s\n"
    )
    assert mq("ring", "change", "--unset", "backoff").out == "ring default: backoff 3 s → 0 ms\n"
    mq("ring", "change", "--set", 'costs={"service_page_item": [1, 0]}')
    mq("ring", "change", "--set", 'costs={"reap_page": [2, 0]}')
    config = mq.json("ring", "show")["config"]
    assert config["costs"] == {"service_page_item": [1, 0], "reap_page": [2, 0]}
    assert (config["max_attempts"], config["key_window"]) == (5, DAY)


def test_two_processes_that_change_different_settings_keep_both(mq: Terminal, store_uri: str) -> None:
    with MessageQueue(store_uri) as first, MessageQueue(store_uri) as second:
        first.admin.set_origin("acme", share=3)
        second.admin.set_origin("acme", most=Weight(10, 10))
        assert first.admin.set_origin("acme", unset=["share"]) == {"share": (3, 1)}
        assert second.inspect.origin_settings("acme").most == Weight(10, 10)
        with pytest.raises(ConfigRefused, match="did you mean share"):
            first.admin.set_origin("acme", unset=["shares"])
        with pytest.raises(ConfigRefused, match="every message would be set aside"):
            first.admin.create_ring("idle", RingConfig(service_weight=Weight(0, 1)))


def test_a_block_is_named_by_its_number_or_its_token(mq: Terminal, store_uri: str) -> None:
    with MessageQueue(store_uri) as queue:
        queue.enqueue_messages("acme", [b"1", b"2"])
        block = queue.blocks.plan()
        other = queue.blocks.plan()
        assert [queue.blocks.get(name).token for name in (block.id, str(block.id), block.token, block)] == [
            block.token
        ] * 4
        assert queue.blocks.renew(block.id, 5_000) == queue.blocks.get(block.id).deadline
        assert queue.blocks.reported(block.id) == {}
        queue.blocks.report(block.id, [batch.answer() for batch in block.batches()])
        assert queue.blocks.settle(block.id).processed == 2
        for unknown in (other.id + 1, 0, "-1", "x", 10**30):
            with pytest.raises(UnknownBlock):
                queue.blocks.release(unknown)
    assert mq.json("block", "show", str(block.id))["token"] == block.token
    assert f"released block {other.id}" in mq("block", "release", str(other.id)).out
    assert json.loads(mq("block", "show", other.token, "--json").out)["state"] == "released"


def test_an_origin_without_messages_suggests_a_near_one(mq: Terminal) -> None:
    mq("enqueue", "acme/orders", "x")
    assert mq("explain", "acme/order").out == "acme/order has no messages; did you mean acme/orders?\n"
    assert mq("explain", "acme").out == "acme has no messages; did you mean acme/orders?\n"
    assert mq("explain", "zebra").out == "zebra has no messages.\n"
    assert "acme/order has no messages; did you mean acme/orders?" in mq("queue", "show", "acme/order").out
    assert "did you mean acme/orders?" in mq("queue", "list", "--prefix", "bcme/orders").out
    assert "did you mean" not in mq("set-aside", "list", "--origin", "acme/orders").out


def test_an_origin_with_messages_suggests_none(mq: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    mq("enqueue", "acme", "x")
    mq("enqueue", "acme/orders", "x")
    # It reads no queue to its end.
    monkeypatch.setattr(MessageQueue, "footprint", None)
    monkeypatch.setattr(MessageQueue, "footprints", None)
    for words in (["queue", "pause"], ["set-aside", "list", "--origin"], ["message", "events", "--origin"]):
        printed = mq(*words, "acme").out
        assert "did you mean" not in printed and "has no messages" not in printed
    assert "acme/order has no messages; did you mean acme/orders?" in mq("queue", "pause", "acme/order").out


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["message", "list", "acme/order"], 0),
        (["message", "events", "--origin", "acme/order"], 0),
        (["message", "next", "acme/order"], 1),
        (["set-aside", "list", "--origin", "acme/order"], 0),
        (["set-aside", "requeue", "--origin", "acme/order"], 0),
        (["set-aside", "requeue", "acme/order:0:0"], 3),
        (["set-aside", "discard", "--origin", "acme/order", "--why", "x"], 0),
        (["set-aside", "discard", "acme/order:0:0", "--why", "x"], 3),
        (["set-aside", "execute", "acme/order:0:0", "--processor", "builtins:print"], 3),
        (["admin", "set-aside-queue", "acme/order"], 0),
        (["admin", "service-next", "acme/order"], 1),
        (["queue", "pause", "acme/order"], 0),
    ],
)
def test_each_command_suggests_an_origin(mq: Terminal, words: list[str], code: int) -> None:
    mq("enqueue", "acme/orders", "x")
    said = mq(*words, code=code)
    assert "did you mean acme/orders?" in said.out + said.err


@pytest.mark.parametrize(
    ("words", "code", "near"),
    [
        (["--ring", "nigth", "queue", "list"], 3, "'night'"),
        (["ring", "show", "nigth"], 3, "'night'"),
        (["enqueue", "acme", "x", "--ring", "nigth"], 3, "'night'"),
        (["queue", "set", "acme", "--unset", "shar"], 2, "share"),
        (["queue", "set", "acme", "--shar", "2"], 2, "--share"),
        (["ring", "change", "--sett=backoff=1"], 2, "--set"),
        (["block", "list", "--state", "planed"], 2, "planned"),
        (["message", "events", "--name", "Processd"], 2, "Processed"),
        (["enqueue", "acme", "x", "--priority", "hihg"], 2, "high"),
        (["queue", "resume", "acmee"], 1, "acme"),
    ],
)
def test_what_is_rejected_suggests_a_near_name(mq: Terminal, words: list[str], code: int, near: str) -> None:
    mq("ring", "create", "night")
    mq("queue", "pause", "acme")
    said = mq(*words, code=code)
    assert f"did you mean {near}?" in said.out + said.err
