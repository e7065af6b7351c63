"""Views, tokens and commands at random, over two rings: one place each at every commit, in order, and settled once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from airflow_mq import Corrupt, Done, Message, Weight
from airflow_mq.core.errors import MessageQueueError
from airflow_mq.core.priority import HIGH, PRIORITIES, REGULAR, book_name, books_of, origin_of, priority_of
from airflow_mq.queue import ReferenceToken
from tests.postgres_server import Server

from .clock import SECOND, Clock
from .places import BOOKS, ORIGINS, Entry, Holder, Place, Places, Store, books, places, rings
from .sides import block_facts
from .test_model import chosen, hasty, run

__all__ = ["hasty"]


#: What becomes of a message that was taken: where it is handed on, or else.
ENDS = st.sampled_from(["nothing", "complete", "give back"]) | places | places


@dataclass
class Command:
    """What somebody means to do within a transaction: sends, and completions; to nowhere, it only completes."""

    ring: int
    to: Place | None
    #: Rows of messages that are sent together, and holders that are completed together.
    parts: list[list[Message] | list[Holder]]
    more: dict[str, Any] = field(default_factory=dict)


@dataclass
class Draft:
    """What a transaction came to so far; it counts when it is committed."""

    done: dict[Holder, str] = field(default_factory=dict)
    sent: list[Entry] = field(default_factory=list)
    keys: dict[tuple[int, str], tuple[str, bytes]] = field(default_factory=dict)


class Refused(Exception):
    """The model says no, by this name."""


class Tokens(Places):
    """Whoever takes messages one at a time, of both priorities, and whoever writes rows of their own with them."""

    names = BOOKS

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        super().begin(data)
        self.rows = 0
        self.keys: dict[tuple[int, str], tuple[str, bytes]] = {}

    # Taking, and what a lease is.

    @precondition(lambda self: self.entries())
    @rule(ring=rings, origins=st.lists(st.none() | st.sampled_from(ORIGINS), min_size=1, max_size=4),
          lease=st.sampled_from([None, None, None, 20.0, 0.0]))  # fmt: skip
    def take(self, ring: int, origins: list[str | None], lease: float | None) -> None:
        for origin in origins:
            self.take_one(ring, origin, lease)

    @precondition(lambda self: self.entries())
    @rule(ring=rings, turns=st.lists(st.tuples(st.none() | st.sampled_from(ORIGINS), ENDS), min_size=2, max_size=7))
    def work(self, ring: int, turns: list[tuple[str | None, Any]]) -> None:
        """Take one after the other, and end each at once: complete it, give it back, or hand it on."""
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
            self.hear()
            self.look_around()

    @rule(place=books, count=st.integers(1, 3), stages=st.integers(2, 4), expires=st.none() | st.just(20))
    def hand_along(self, place: Place, count: int, stages: int, expires: int | None) -> None:
        """Messages go from stage to stage, each time to where fewest are: who lends them is often gone by then."""
        more: dict[str, Any] = {} if expires is None else {"expires": expires}
        if priority_of(place[1]) == HIGH:
            more["priority"] = HIGH
        fresh = [b"%d-" % next(self.serial) for _ in range(count)]
        self.do(lambda store: store.queues[place[0]].enqueue_messages(origin_of(place[1]), fresh, **more).count)
        self.put(self.entry(place, payload, more) for payload in fresh)
        for _ in range(stages):
            self.hear()
            self.look_around()
            while holder := self.take_one(place[0], origin_of(place[1]), None):
                if holder.entry.payload in fresh:
                    break
                self.complete_some([holder], Done())
            if holder is None:
                break
            ring, book = min(self.here, key=lambda one: len(self.here[one]))
            self.transfer_some([holder], (ring, origin_of(book)))
            place = ring, book_name(origin_of(book), holder.entry.priority)
        if expires is not None:
            # Nobody wants it any more, wherever it is by now.
            self.wait(expires + 1.0)
            self.hear()
            self.look_around()
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
            # Who has no lease does not get the message.
            content = None if lease == 0.0 else (token.fetch(), dict(token.headers))
            return (
                book_name(token.address.origin, token.address.priority),
                block_facts(queue.blocks.get(token.secret)),
                content,
            )

        found = self.do(real)
        self.hear()
        able = {one: self.next_of((ring, one)) for one in BOOKS if origin in (None, origin_of(one))}
        if found is None:
            assert not any(able.values()), f"nothing was given of {able}"
            return None
        whose, facts, content = found
        entry = able[whose]
        assert entry is not None, f"{whose} had nothing to give"
        if settled:
            # High ones first; of a ring in turn, and whoever gave one is the last of its priority.
            turns = before if origin is None else books_of(origin)
            assert whose == next(one for one in turns if able[one] is not None), "out of turn"
            regular = any(priority_of(one) == REGULAR and found for one, found in able.items())
            self.met["high before regular"] += regular and priority_of(whose) == HIGH
        if origin is None and settled:
            mine, others = [], []
            for one in before:
                (mine if priority_of(one) == priority_of(whose) else others).append(one)
            mine = [*(one for one in mine if one != whose), whose]
            assert self.order(ring) == (mine + others if priority_of(whose) == HIGH else others + mine)
        holder = Holder(ring, self.clock.now + int((60.0 if lease is None else lease) * SECOND), texts, {})
        self.hold(holder, facts)
        assert list(holder.fates) == [entry] and content in (None, (entry.payload, entry.headers))
        assert all(one.expires is not None and one.expires <= self.clock.now for one in holder.decided)
        self.met["taken"] += 1
        return holder

    def order(self, ring: int) -> list[str]:
        """The ready books: high ones in their turn, then regular ones in theirs."""
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
        deadline = self.clock.now + int((60.0 if lease is None else lease) * SECOND)
        found = self.with_tokens([holder], lambda queue, tokens: tokens[0].renew(lease).timestamp())
        if self.allowed(holder, found):
            assert found == deadline / SECOND
            holder.deadline = deadline

    @precondition(lambda self: self.tokens())
    @rule(data=st.data())
    def look_by_token(self, data: st.DataObject) -> None:
        holder = data.draw(st.sampled_from(self.tokens()))
        found = self.with_tokens([holder], lambda queue, tokens: (tokens[0].fetch(), dict(tokens[0].headers)))
        if self.allowed(holder, found):
            assert found == (holder.entry.payload, holder.entry.headers)

    @precondition(lambda self: self.tokens())
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        self.give_back_one(data.draw(st.sampled_from(self.tokens())))

    def give_back_one(self, holder: Holder) -> None:
        found = self.with_tokens([holder], lambda queue, tokens: tokens[0].give_back())
        if self.allowed(holder, found):
            holder.state = "over"

    @precondition(lambda self: self.tokens())
    @rule(data=st.data(), outcome=st.sampled_from([Done(), Done(), Done(False), Corrupt()]))
    def complete(self, data: st.DataObject, outcome: Any) -> None:
        """In a transaction of its own, settled at once: all of them, or none."""
        self.complete_some(self.some_tokens(data), outcome)

    def some_tokens(self, data: st.DataObject) -> list[Holder]:
        ring = data.draw(st.sampled_from(self.tokens())).ring
        return data.draw(st.lists(st.sampled_from(self.tokens(ring)), min_size=1, max_size=3, unique=True))

    def complete_some(self, some: list[Holder], outcome: Any) -> None:
        found = self.with_tokens(some, lambda queue, tokens: queue.leases.complete(tokens, outcome))
        if self.allowed_all(some, found):
            assert found == len(some)
            for holder in some:
                holder.fates[holder.entry] = "Processed" if isinstance(outcome, Done) else "ProcessingFailed"
                holder.state = "over"

    @precondition(lambda self: self.tokens())
    @rule(data=st.data(), to=places)
    def transfer(self, data: st.DataObject, to: Place) -> None:
        """The same, but handed on."""
        self.transfer_some(self.some_tokens(data), to)

    def transfer_some(self, some: list[Holder], to: Place) -> None:
        ring, name = some[0].ring, self.stores[0].queues[to[0]].ring
        command, draft = Command(ring, to, [some]), Draft()
        expected = self.foreseen(command, draft)
        found = self.with_tokens(some, lambda queue, tokens: told(queue.leases.transfer(tokens, to[1], ring=name)))
        assert found == expected
        if not isinstance(found, str):
            self.commit(draft)
            self.tidy(ring)

    def with_tokens(self, some: list[Holder], call: Callable[[Any, list[ReferenceToken]], Any]) -> Any:
        """Whoever has the text of a token has it."""
        sides = iter(range(len(self.stores)))

        def real(store: Store) -> Any:
            queue, side = store.queues[some[0].ring], next(sides)
            return call(queue, [queue.leases.token(holder.real[side]) for holder in some])

        return self.do(real)

    def allowed(self, holder: Holder, found: Any) -> bool:
        return self.allowed_all([holder], found)

    def allowed_all(self, some: list[Holder], found: Any) -> bool:
        """Whoever is late is refused, and nothing was changed."""
        if all(self.lives(holder) for holder in some):
            assert found is None or not isinstance(found, str), found
            return True
        assert found == "TokenRefused"
        self.met["too late"] += 1
        return False

    # Transactions of the caller's.

    @rule(data=st.data(), ring=rings, commits=st.booleans())
    def transact(self, data: st.DataObject, ring: int, commits: bool) -> None:
        """Rows and commands go together, or none of them; one that is refused leaves the others."""
        for _ in range(0 if self.tokens(ring) else 2):
            self.take_one(ring, None, None)
        commands = [self.command(data, ring) for _ in range(data.draw(st.integers(1, 4), "commands"))]
        self.rows += 1
        row, draft = f"{self.example}:{self.rows}", Draft()
        expected = [self.foreseen(command, draft) for command in commands]
        sides = iter(range(len(self.stores)))

        def real(store: Store) -> list[Any]:
            side, caller = next(sides), store.caller
            caller.run(f"INSERT INTO business VALUES ('{row}')")
            maker, found = store.queues[ring].commands(caller.connection), []
            for command in commands:
                try:
                    found.append(told(self.made(store, side, maker, command).execute()))
                except MessageQueueError as error:
                    found.append(type(error).__name__)
            return found

        assert self.do(real) == expected
        # Nobody sees anything of it before the commit.
        self.look_around()
        for store in self.stores:
            store.caller.commit() if commits else store.caller.rollback()
            assert (row in store.caller.rows()) is commits
        if commits:
            self.commit(draft)
        self.met["committed" if commits else "rolled back"] += bool(draft.done or draft.sent)
        self.met.update(f"refused: {one}" for one in expected if isinstance(one, str))

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
                {"weight": Weight(7, 1)}, {"weight": Weight(25, 1)}, {"headers": {"said": "here"}}, {"expires": 30},
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
        """The command itself."""

        def released(some: list[Holder]) -> Any:
            return maker.complete([holder.real[side] for holder in some])

        if command.to is None:
            return released(command.parts[0])  # type: ignore[arg-type]
        what: list[Any] = []
        for part in command.parts:
            what += [released(part)] if isinstance(part[0], Holder) else part  # type: ignore[arg-type]
        ring, origin = command.to
        return maker.push(origin, *what, ring=store.queues[ring].ring, **command.more)

    def foreseen(self, command: Command, draft: Draft) -> Any:
        """What becomes of a command in a transaction that came so far: its count, size and repeated, or a refusal."""
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
                    count, size = count + len(fresh), size + sum(len(one.payload) for one in fresh)
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
            # What is handed on keeps its priority, unless somebody says otherwise.
            place = to[0], book_name(to[1], more.get("priority", entry.priority))
            fresh = self.entry(place, entry.payload, more)
            fresh.headers = fresh.headers or entry.headers
            fresh.expires = fresh.expires if "expires" in more else entry.expires
            draft.sent.append(fresh)
        return len(entry.payload)

    def sent(self, command: Command, messages: list[Any], draft: Draft) -> list[Entry]:
        assert command.to is not None
        ring, origin = command.to
        if any(len(one.payload) > self.config[ring].max_message_len for one in messages):
            raise Refused("MessageTooLong")
        fresh = []
        for one in messages:
            known = {**self.keys, **draft.keys}.get((ring, one.key))
            if known and known != (origin, one.payload):
                raise Refused("KeyConflict")
            if not known:
                place = ring, book_name(origin, command.more.get("priority", REGULAR))
                fresh.append(self.entry(place, one.payload, command.more))
                if one.key:
                    draft.keys[ring, one.key] = origin, one.payload
        return fresh

    def commit(self, draft: Draft) -> None:
        for holder, promised in draft.done.items():
            holder.fates[holder.entry] = promised
            holder.state = "said"
        self.put(draft.sent)
        self.keys.update(draft.keys)


def rows_of(parts: list[Any]) -> list[Any]:
    """What is sent in a row goes together; what is completed, one after the other."""
    found: list[Any] = []
    for part in parts:
        if found and not isinstance(part[0], Holder) and not isinstance(found[-1][0], Holder):
            found[-1] = [*found[-1], *part]
        else:
            found.append(list(part))
    return found


def told(result: Any) -> Any:
    return result if isinstance(result, int) else (result.count, result.size, result.repeated)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_tokens_at_random(tmp_path: Path, clock: Clock, hasty: None) -> None:
    met = run([f"sqlite:///{tmp_path / 'queue.db'}"], clock, chosen(20, 35), Tokens)
    for what in ("taken", "high before regular", "too late", "committed", "rolled back", "Transferred", "Processed", "WentBack",
                 "refused: TokenRefused", "nothing was left"):  # fmt: skip
        assert met[what], f"never met: {what}"


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.timeout(0)
def test_tokens_at_random_on_both_stores(tmp_path: Path, postgres_server: Server, clock: Clock, hasty: None) -> None:
    with postgres_server.database() as uri:
        run([f"sqlite:///{tmp_path / 'queue.db'}", uri], clock, chosen(4, 25), Tokens)
