"""Views, tokens and commands at random, over two rings: one place at each commit, order kept, settled once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from airflow_mq import Corrupt, Done, Message, Weight
from airflow_mq.engine.queue.tokens import ReferenceToken
from airflow_mq.engine.rules.blob import extent
from airflow_mq.engine.rules.errors import MessageQueueError
from airflow_mq.engine.rules.priority import HIGH, PRIORITIES, REGULAR, book_name, books_of, origin_of, priority_of
from tests.postgres_server import Server

from .clock import SECOND, Clock
from .places import BOOKS, ORIGINS, Entry, Holder, Place, Places, Store, books, places, rings
from .sides import block_facts
from .test_model import chosen, hasty, run

__all__ = ["hasty"]


#: The end of a taken message: a destination, or another action.
ENDS = st.sampled_from(["nothing", "complete", "give back"]) | places | places


@dataclass
class Command:
    """A drawn command: messages to send and holders to complete; without a destination, it only completes."""

    ring: int
    to: Place | None
    #: Messages that are sent together, and holders that are completed together.
    parts: list[list[Message] | list[Holder]]
    more: dict[str, Any] = field(default_factory=dict)


@dataclass
class Draft:
    """The uncommitted result of a transaction."""

    done: dict[Holder, str] = field(default_factory=dict)
    sent: list[Entry] = field(default_factory=list)
    keys: dict[tuple[int, str], tuple[str, bytes]] = field(default_factory=dict)


class Refused(Exception):
    """A refusal of the model, by name."""


class Tokens(Places):
    """Rules that take single messages of both priorities, and write rows with them."""

    names = BOOKS

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        super().begin(data)
        self.rows = 0
        self.keys: dict[tuple[int, str], tuple[str, bytes]] = {}

    # Taking and leasing.

    @precondition(lambda self: self.entries())
    @rule(ring=rings, origins=st.lists(st.none() | st.sampled_from(ORIGINS), min_size=1, max_size=4),
          lease=st.sampled_from([None, None, None, 20.0, 0.0]))  # fmt: skip
    def take(self, ring: int, origins: list[str | None], lease: float | None) -> None:
        for origin in origins:
            self.take_one(ring, origin, lease)

    @precondition(lambda self: self.entries())
    @rule(ring=rings, turns=st.lists(st.tuples(st.none() | st.sampled_from(ORIGINS), ENDS), min_size=2, max_size=7))
    def work(self, ring: int, turns: list[tuple[str | None, Any]]) -> None:
        """Take messages in turn, and end each at once: complete, give back or transfer."""
        for origin, end in turns:
            holder = self.take_one(ring, origin, None)
            if holder is None or end == "nothing":
                continue
            if end == "give back":
                self.give_back_one(holder)
            elif end == "complete":
                self.complete_some([holder], Done())
            else:
                self.transfer_some([holder], end)
            self.read_events()
            self.check_places()

    @rule(place=books, count=st.integers(1, 3), stages=st.integers(2, 4), expires=st.none() | st.just(20))
    def hand_along(self, place: Place, count: int, stages: int, expires: int | None) -> None:
        """Transfer messages from stage to stage, each time to the shortest queue, often past the end of their old pages."""
        more: dict[str, Any] = {} if expires is None else {"expires": expires}
        if priority_of(place[1]) == HIGH:
            more["priority"] = HIGH
        fresh = [b"%d-" % next(self.serial) for _ in range(count)]
        self.do(lambda store: store.queues[place[0]].enqueue_messages(origin_of(place[1]), fresh, **more).count)
        self.put(self.entry(place, payload, more) for payload in fresh)
        for _ in range(stages):
            self.read_events()
            self.check_places()
            while holder := self.take_one(place[0], origin_of(place[1]), None):
                if holder.entry.payload in fresh:
                    break
                self.complete_some([holder], Done())
            if holder is None:
                break
            ring, book = min(self.here, key=lambda queue_place: len(self.here[queue_place]))
            self.transfer_some([holder], (ring, origin_of(book)))
            place = ring, book_name(origin_of(book), holder.entry.priority)
        if expires is not None:
            # The messages expire, in any place.
            self.wait(expires + 1.0)
            self.read_events()
            self.check_places()
            self.take_one(place[0], origin_of(place[1]), None)

    def take_one(self, ring: int, origin: str | None, lease: float | None) -> Holder | None:
        settled = not any(holder.ring == ring and not self.lives(holder) for holder in self.holders)
        before = self.order(ring)
        self.tidy(ring)
        texts: list[str] = []

        def real(store: Store) -> Any:
            queue = store.queues[ring]
            token = queue.leases.view(origin, lease=lease).try_next()
            if token is None:
                return None
            texts.append(str(token))
            # A token without a live lease does not return the message.
            content = None if lease == 0.0 else (token.fetch(), dict(token.headers))
            return (
                book_name(token.address.origin, token.address.priority),
                block_facts(queue.blocks.get(token.secret)),
                content,
            )

        taken = self.do(real)
        self.read_events()
        candidates = {book: self.next_of((ring, book)) for book in BOOKS if origin in (None, origin_of(book))}
        if taken is None:
            assert not any(candidates.values()), f"no message was returned of {candidates}"
            return None
        taken_book, facts, content = taken
        entry = candidates[taken_book]
        assert entry is not None, f"{taken_book} had no message"
        if settled:
            # High messages come first; in a ring, origins take turns, and the taken one becomes the last of its
            # priority.
            turns = before if origin is None else books_of(origin)
            assert taken_book == next(book for book in turns if candidates[book] is not None), "out of turn"
            regular = any(priority_of(book) == REGULAR and candidate for book, candidate in candidates.items())
            self.met["high before regular"] += regular and priority_of(taken_book) == HIGH
        if origin is None and settled:
            mine, others = [], []
            for book in before:
                (mine if priority_of(book) == priority_of(taken_book) else others).append(book)
            mine = [*(book for book in mine if book != taken_book), taken_book]
            turns = mine + others if priority_of(taken_book) == HIGH else others + mine
            after = self.order(ring)
            # A queue whose messages have expired leaves the ring.
            left = {book for book in turns if book not in after and not self.here[ring, book]}
            self.met["expired on the way"] += bool(left)
            assert after == [book for book in turns if book not in left]
        seconds = 60.0 if lease is None else lease
        holder = Holder(ring, self.clock.now + int(seconds * SECOND), seconds, texts, {})
        self.hold(holder, facts)
        assert list(holder.fates) == [entry] and content in (None, (entry.payload, entry.headers))
        assert all(entry.expires is not None and entry.expires <= self.clock.now for entry in holder.decided)
        self.met["taken"] += 1
        return holder

    def order(self, ring: int) -> list[str]:
        """Return the ready books: high ones in order, then regular ones."""
        return [
            book_name(origin, priority)
            for priority in PRIORITIES[::-1]
            for origin in self.do(lambda store: store.queues[ring].inspect.ring_order(100, priority))  # noqa: B023
        ]

    def tokens(self, ring: int | None = None) -> list[Holder]:
        return [holder for holder in self.holders if holder.is_token and ring in (None, holder.ring)]

    @precondition(lambda self: self.tokens())
    @rule(data=st.data(), lease=st.sampled_from([None, 5.0, 100.0]))
    def renew(self, data: st.DataObject, lease: float | None) -> None:
        holder = data.draw(st.sampled_from(self.tokens()))
        seconds = holder.seconds if lease is None else lease
        deadline = max(holder.deadline, self.clock.now + int(seconds * SECOND))
        answer = self.with_tokens([holder], lambda queue, tokens: tokens[0].renew(lease).timestamp())
        if self.allowed(holder, answer):
            assert answer == deadline / SECOND
            holder.deadline = deadline

    @precondition(lambda self: self.tokens())
    @rule(data=st.data())
    def look_by_token(self, data: st.DataObject) -> None:
        holder = data.draw(st.sampled_from(self.tokens()))
        answer = self.with_tokens([holder], lambda queue, tokens: (tokens[0].fetch(), dict(tokens[0].headers)))
        if self.allowed(holder, answer):
            assert answer == (holder.entry.payload, holder.entry.headers)

    @precondition(lambda self: self.tokens())
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        self.give_back_one(data.draw(st.sampled_from(self.tokens())))

    def give_back_one(self, holder: Holder) -> None:
        answer = self.with_tokens([holder], lambda queue, tokens: tokens[0].give_back())
        if self.allowed(holder, answer):
            holder.state = "over"

    @precondition(lambda self: self.tokens())
    @rule(data=st.data(), outcome=st.sampled_from([Done(), Done(), Done(False), Corrupt()]))
    def complete(self, data: st.DataObject, outcome: Any) -> None:
        """Complete tokens in one transaction, settled at once: all of them, or none."""
        self.complete_some(self.some_tokens(data), outcome)

    def some_tokens(self, data: st.DataObject) -> list[Holder]:
        ring = data.draw(st.sampled_from(self.tokens())).ring
        return data.draw(st.lists(st.sampled_from(self.tokens(ring)), min_size=1, max_size=3, unique=True))

    def complete_some(self, some: list[Holder], outcome: Any) -> None:
        answer = self.with_tokens(some, lambda queue, tokens: queue.leases.complete(tokens, outcome))
        if self.allowed_all(some, answer):
            assert answer == len(some)
            for holder in some:
                holder.fates[holder.entry] = "Processed" if isinstance(outcome, Done) else "ProcessingFailed"
                holder.state = "over"

    @precondition(lambda self: self.tokens())
    @rule(data=st.data(), to=places)
    def transfer(self, data: st.DataObject, to: Place) -> None:
        """Transfer tokens in one transaction."""
        self.transfer_some(self.some_tokens(data), to)

    def transfer_some(self, some: list[Holder], to: Place) -> None:
        ring, name = some[0].ring, self.stores[0].queues[to[0]].ring
        command, draft = Command(ring, to, [some]), Draft()
        expected = self.expected_result(command, draft)
        answer = self.with_tokens(
            some, lambda queue, tokens: plain_result(queue.leases.transfer(tokens, to[1], ring=name))
        )
        assert answer == expected
        if not isinstance(answer, str):
            self.commit(draft)
            self.tidy(ring)

    def with_tokens(self, some: list[Holder], call: Callable[[Any, list[ReferenceToken]], Any]) -> Any:
        """Call with tokens that are read from their texts."""
        sides = iter(range(len(self.stores)))

        def real(store: Store) -> Any:
            queue, side = store.queues[some[0].ring], next(sides)
            return call(queue, [queue.leases.token(holder.real[side]) for holder in some])

        return self.do(real)

    def allowed(self, holder: Holder, answer: Any) -> bool:
        return self.allowed_all([holder], answer)

    def allowed_all(self, some: list[Holder], answer: Any) -> bool:
        """Return whether all holders are live; otherwise check that the call was refused."""
        if all(self.lives(holder) for holder in some):
            assert answer is None or not isinstance(answer, str), answer
            return True
        assert answer == "TokenRefused"
        self.met["too late"] += 1
        return False

    # The caller's transactions.

    @rule(data=st.data(), ring=rings, commits=st.booleans())
    def transact(self, data: st.DataObject, ring: int, commits: bool) -> None:
        """Commit or roll back rows and commands together; a refused command leaves the others."""
        for _ in range(0 if self.tokens(ring) else 2):
            self.take_one(ring, None, None)
        commands = [self.command(data, ring) for _ in range(data.draw(st.integers(1, 4), "commands"))]
        self.rows += 1
        row, draft = f"{self.example}:{self.rows}", Draft()
        expected = [self.expected_result(command, draft) for command in commands]
        sides = iter(range(len(self.stores)))

        def real(store: Store) -> list[Any]:
            side, caller = next(sides), store.caller
            caller.run(f"INSERT INTO business VALUES ('{row}')")
            maker, results = store.queues[ring].commands(caller.connection), []
            for command in commands:
                try:
                    results.append(plain_result(self.made(store, side, maker, command).execute()))
                except MessageQueueError as error:
                    results.append(type(error).__name__)
            return results

        assert self.do(real) == expected
        # The changes are invisible before the commit.
        self.check_places()
        for store in self.stores:
            store.caller.commit() if commits else store.caller.rollback()
            assert (row in store.caller.rows()) is commits
        if commits:
            self.commit(draft)
        self.met["committed" if commits else "rolled back"] += bool(draft.done or draft.sent)
        self.met.update(f"refused: {result}" for result in expected if isinstance(result, str))

    def command(self, data: st.DataObject, ring: int) -> Command:
        draw, tokens = data.draw, self.tokens(ring)
        to = draw(st.none() | places | places | places) if tokens else draw(places)
        kinds = ["release"] if to is None else ["release", "release", "send"] if tokens else ["send"]
        parts: list[Any] = []
        for kind in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=1 if to is None else 3), "parts"):
            if kind == "release":
                parts.append(draw(st.lists(st.sampled_from(tokens), min_size=1, max_size=2, unique=True)))
            else:
                parts.append([self.message(data, to) for _ in range(draw(st.integers(1, 3)))])
        more: dict[str, Any] = {}
        if to is not None and draw(st.integers(0, 3)) == 0:
            more = draw(st.sampled_from([
                {"weight": Weight(7, 1)}, {"weight": Weight(25, 1)}, {"headers": {"source": "here"}}, {"expires": 30},
                {"priority": HIGH}, {"priority": HIGH}, {"priority": REGULAR},
            ]))  # fmt: skip
        return Command(ring, to, parts, more)

    def message(self, data: st.DataObject, to: Place | None) -> Message:
        assert to is not None
        known = [key for (ring, key), (origin, _) in self.keys.items() if (ring, origin) == to]
        kind = data.draw(st.sampled_from(["new", "new", "key", "key", "again", "again", "again", "conflict"]))
        payload = self.payload(data, 59)
        if kind == "new" or (kind != "key" and not known):
            return Message(payload)
        key = f"key {next(self.serial)}" if kind == "key" else data.draw(st.sampled_from(known))
        return Message(self.keys[to[0], key][1] if kind == "again" else payload, key=key)

    def made(self, store: Store, side: int, maker: Any, command: Command) -> Any:
        """Return the command on one store."""

        def released(some: list[Holder]) -> Any:
            return maker.complete([holder.real[side] for holder in some])

        if command.to is None:
            return released(command.parts[0])  # type: ignore[arg-type]
        contents: list[Any] = []
        for part in command.parts:
            contents += [released(part)] if isinstance(part[0], Holder) else part  # type: ignore[arg-type]
        ring, origin = command.to
        return maker.push(origin, *contents, ring=store.queues[ring].ring, **command.more)

    def expected_result(self, command: Command, draft: Draft) -> Any:
        """Return the expected count, size and repeated of a command in this transaction, or its refusal."""
        mine = Draft(dict(draft.done), [], dict(draft.keys))
        count = size = repeated = 0
        try:
            for part in rows_of(command.parts):
                if isinstance(part[0], Holder):
                    lengths = [self.release(command, holder, mine) for holder in part]
                    count, size = count + len(lengths), size + sum(lengths)
                else:
                    fresh = self.sent(command, part, mine)
                    repeated += len(part) - len(fresh)
                    count, size = count + len(fresh), size + sum(extent(entry.payload) for entry in fresh)
                    mine.sent += fresh
        except Refused as refusal:
            return str(refusal)
        draft.done, draft.keys = mine.done, mine.keys
        draft.sent += mine.sent
        return count if command.to is None else (count, size, repeated)

    def release(self, command: Command, holder: Holder, draft: Draft) -> int:
        if not self.lives(holder) or holder in draft.done:
            raise Refused("TokenRefused")
        entry, to, more = holder.entry, command.to, command.more
        draft.done[holder] = "Transferred" if to else "Processed"
        if to is not None:
            if len(entry.payload) > self.config[to[0]].max_message_len:
                raise Refused("MessageTooLong")
            # A transferred message keeps its priority unless the command sets one.
            place = to[0], book_name(to[1], more.get("priority", entry.priority))
            fresh = self.entry(place, entry.payload, more)
            fresh.headers = fresh.headers or entry.headers
            fresh.expires = fresh.expires if "expires" in more else entry.expires
            draft.sent.append(fresh)
        return extent(entry.payload)

    def sent(self, command: Command, messages: list[Any], draft: Draft) -> list[Entry]:
        assert command.to is not None
        ring, origin = command.to
        if any(len(message.payload) > self.config[ring].max_message_len for message in messages):
            raise Refused("MessageTooLong")
        fresh = []
        for message in messages:
            known = {**self.keys, **draft.keys}.get((ring, message.key))
            if known and known != (origin, message.payload):
                raise Refused("KeyConflict")
            if not known:
                place = ring, book_name(origin, command.more.get("priority", REGULAR))
                fresh.append(self.entry(place, message.payload, command.more))
                if message.key:
                    draft.keys[ring, message.key] = origin, message.payload
        return fresh

    def commit(self, draft: Draft) -> None:
        for holder, promised in draft.done.items():
            holder.fates[holder.entry] = promised
            holder.state = "reported"
        self.put(draft.sent)
        self.keys.update(draft.keys)


def rows_of(parts: list[Any]) -> list[Any]:
    """Join adjacent lists of messages, which are sent together; keep completions separate."""
    groups: list[Any] = []
    for part in parts:
        if groups and not isinstance(part[0], Holder) and not isinstance(groups[-1][0], Holder):
            groups[-1] = [*groups[-1], *part]
        else:
            groups.append(list(part))
    return groups


def plain_result(result: Any) -> Any:
    return result if isinstance(result, int) else (result.count, result.size, result.repeated)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_random_tokens_on_sqlite(tmp_path: Path, clock: Clock, hasty: None) -> None:
    met = run([f"sqlite:///{tmp_path / 'queue.db'}"], clock, chosen(20, 35), Tokens)
    for situation in ("taken", "high before regular", "too late", "committed", "rolled back", "Transferred", "Processed", "Returned",
                 "refused: TokenRefused", "drained"):  # fmt: skip
        assert met[situation], f"never met: {situation}"


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.timeout(0)
def test_random_tokens_on_both_stores(tmp_path: Path, postgres_server: Server, clock: Clock, hasty: None) -> None:
    with postgres_server.database() as uri:
        run([f"sqlite:///{tmp_path / 'queue.db'}", uri], clock, chosen(4, 25), Tokens)
