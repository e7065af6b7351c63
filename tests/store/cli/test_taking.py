"""`next`, `complete`, `give-back`, `transfer`: one message at a time, from a shell."""

from __future__ import annotations

from airflow_mq import MessageQueue
from tests.store.cli.conftest import Terminal


def test_a_message_is_taken_and_completed(mq: Terminal, queue: MessageQueue) -> None:
    mq("enqueue", "acme", "one", "two")
    taken = mq.json("message", "next", "acme", "--lease", "60")
    assert (taken["payload"], taken["address"], taken["headers"]) == ("one", "acme:0:0", {})
    assert "nothing to take" in mq("message", "next", "acme", code=1).out
    assert mq("message", "next", "--json", code=1).json is None
    assert mq.json("message", "complete", taken["token"]) == {"completed": 1}
    assert mq.json("queue", "show", "acme")["count"] == 1
    assert "too late" in mq("message", "complete", taken["token"], code=3).err
    assert "two" in mq("message", "next", "acme").out


def test_a_message_that_was_completed_in_a_transaction_needs_no_person(mq: Terminal, queue: MessageQueue) -> None:
    """The next plan, view or service settles it, and nothing waits for it."""
    mq("enqueue", "acme", "one")
    token = queue.leases.next()
    assert token is not None
    queue.commands(queue.store).complete(token).execute()
    assert "nothing that was checked needs a person" in mq("status").out
    assert [row["overdue"] for row in mq.json("block", "list")] == [False]
    assert "closed" in mq("block", "list").out and "closed for" in mq("top", "--once").out


def test_a_message_is_given_back(mq: Terminal, queue: MessageQueue) -> None:
    mq("enqueue", "acme", "one")
    token = mq.json("message", "next")["token"]
    assert mq.json("message", "give-back", token) == {"given_back": 1}
    assert mq.json("message", "next")["payload"] == "one"


def test_messages_are_given_back_all_or_none(mq: Terminal, queue: MessageQueue) -> None:
    mq("enqueue", "acme", "one")
    mq("enqueue", "birch", "two")
    one, two = (mq.json("message", "next")["token"] for _ in range(2))
    unknown = f"default/{'0' * 32}/a:0:0"
    assert "unknown token" in mq("message", "give-back", one, two, unknown, code=3).err
    assert "each message is named once" in mq("message", "give-back", one, one, code=2).err
    assert "nothing to take" in mq("message", "next", code=1).out
    # Tokens may follow an option, too.
    assert mq("message", "give-back", one, "--json", two).json == {"given_back": 2}
    assert "it was completed or given back; it is too late" in mq("message", "complete", one, code=3).err
    assert [mq.json("message", "next")["payload"] for _ in range(2)] == ["one", "two"]
    assert queue.check() == []


def test_a_message_is_handed_on(mq: Terminal, queue: MessageQueue) -> None:
    mq("ring", "create", "later")
    mq("enqueue", "acme", "one")
    mq("enqueue", "birch", "two")
    tokens = [mq.json("message", "next")["token"] for _ in range(2)]
    assert "handed on: 2 messages" in mq("message", "transfer", *tokens, "--to", "publish", "--to-ring", "later").out
    assert mq.json("--ring", "later", "queue", "show", "publish")["count"] == 2
    token = mq.json("--ring", "later", "message", "next")["token"]
    # A token names its ring.
    assert mq.json("message", "transfer", token, "--to", "acme", "--to-ring", "default") == {"handed_on": 1}
    assert mq.json("message", "next")["payload"] == "one"
    assert queue.check() == []


def test_what_makes_no_sense(mq: Terminal, queue: MessageQueue) -> None:
    for words in (("complete", "no token"), ("give-back", "a/b/c"), ("next", "a\nb"), ("transfer", "x", "--to", "b")):
        assert mq("message", *words, code=2).err.startswith("error")
    mq("ring", "create", "other")
    one, other = f"default/{'0' * 32}/a:0:0", f"other/{'0' * 32}/a:0:0"
    assert "one ring at a time" in mq("message", "complete", one, other, code=2).err
    assert "unknown token" in mq("message", "complete", one, code=3).err
    for words in (("complete", one), ("give-back", one), ("transfer", one, "--to", "b")):
        assert "expected a token of ring 'other'" in mq("--ring", "other", "message", *words, code=2).err
