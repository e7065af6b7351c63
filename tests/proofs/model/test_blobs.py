"""External payloads at random: stored while a message or a hold refers to them, and no longer."""

from __future__ import annotations

import io
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from airflow_mq import Delivery, Message, RingConfig, Weight
from airflow_mq.engine.queue.payloads import Held
from airflow_mq.engine.rules.blob import Reference
from airflow_mq.engine.rules.errors import UploadGivenUp
from airflow_mq.engine.store import blobs
from airflow_mq.engine.store.blobs import Upload
from tests.postgres_server import Server

from .clock import SECOND, Clock
from .places import Place, Store, places
from .test_model import chosen, hasty, run
from .test_tokens import Command, Draft, Refused, Tokens

__all__ = ["hasty"]
#: Bytes of a chunk, chunks per transaction, and the seconds for which an upload is held.
CHUNK, TOGETHER, KEEP = 64, 2, 50
SIZES = (1, 64, 65, 130, 300)
which = st.integers(0, len(SIZES) - 1)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use many chunks per payload, and few rows per transaction."""
    for name, number in (("CHUNK", CHUNK), ("TOGETHER", TOGETHER), ("SWEPT", 2), ("REMOVED", 3)):
        monkeypatch.setattr(blobs, name, number)


@dataclass(eq=False)
class Hold:
    """A hold on a payload until messages refer to it."""

    payload: Reference
    until: int
    real: list[Any]


@dataclass(eq=False)
class Begun:
    """An unfinished upload."""

    data: bytes
    until: int
    real: list[Upload]


class Blobs(Tokens):
    """The rules of tokens and commands, for messages with external payloads."""

    folder: ClassVar[Path]

    def configs(self, draw: Callable[..., Any]) -> list[RingConfig]:
        self.path = self.folder / str(next(_folders)) if draw(st.booleans()) else None
        path = None if self.path is None else str(self.path)
        return [config.changed(keep_uploads=float(KEEP), blob_path=path) for config in super().configs(draw)]

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        super().begin(data)
        number = next(_folders)
        self.data = [(b"%d:" % number + bytes(range(256)) * 2)[:size] for size in SIZES[1:]]
        self.data.append(b"%d" % number)
        self.known = {Reference.of(blake2b(data, digest_size=32).digest(), len(data)): data for data in self.data}
        self.holds: list[Hold] = []
        self.begun: list[Begun] = []
        self.swept = False
        self.base = [fresh_id(store) for store in self.stores]

    # State of the model.

    def references(self) -> Counter[Reference]:
        """Count the messages that refer to each payload, including delayed ones."""
        late = [entry for _, _, entries in self.delayed for entry in entries]
        return Counter(e.payload for e in [*self.entries(), *late] if isinstance(e.payload, Reference))

    def held(self) -> dict[Reference, int]:
        """Return the end of the latest hold on each payload."""
        ends: dict[Reference, int] = {}
        for hold in self.holds:
            if hold.until > self.clock.now:
                ends[hold.payload] = max(hold.until, ends.get(hold.payload, 0))
        return ends

    def listed(self, store: Store) -> dict[Reference, tuple[int, int | None]]:
        mine: dict[Reference, tuple[int, int | None]] = {}
        after = b""
        while some := store.queues[0].payloads.list(after, limit=100):
            after = some[-1].hash
            for blob in some:
                until = None if blob.held_until is None else round(blob.held_until.timestamp() * SECOND)
                mine[blob.reference] = blob.references, until
        return {reference: mine[reference] for reference in self.known if reference in mine}

    def is_there(self, payload: Reference) -> bool:
        return payload in self.listed(self.stores[0])

    @invariant()
    def what_is_referred_to_is_there(self) -> None:
        if not hasattr(self, "base"):
            return
        references, held = self.references(), self.held()
        for store in self.stores:
            listed = self.listed(store)
            for payload in self.known:
                if payload in listed:
                    assert listed[payload] == (references[payload], held.get(payload))
                else:
                    assert not references[payload] and payload not in held, "a required payload is missing"
            if self.swept:
                assert set(listed) == set(+references) | set(held), "an unused payload is left"
        self.swept = False

    # Storing.

    def hold_blob(self, data: bytes, real: list[Any]) -> None:
        (payload,) = {held.reference for held in real}
        assert self.known[payload] == data
        self.holds.append(Hold(payload, self.clock.now + KEEP * SECOND, real))

    @rule(index=which, how=st.sampled_from(["bytes", "file", "pieces"]))
    def put_blob(self, index: int, how: str) -> None:
        data = self.data[index]
        self.hold_blob(data, [store.queues[0].payloads.put(source(data, how)) for store in self.stores])

    @rule(index=which, at=st.integers(0, 200))
    def break_off(self, index: int, at: int) -> None:
        """Fail in the middle of a source, which leaves no rows."""

        def pieces() -> Iterator[bytes]:
            yield self.data[index][: at + 1]
            raise ZeroDivisionError

        for store in self.stores:
            with pytest.raises(ZeroDivisionError):
                store.queues[0].payloads.put(pieces())

    @rule(index=st.integers(2, len(SIZES) - 2))
    def begin_upload(self, index: int) -> None:
        """Start an upload that pauses for a while."""
        begun = Begun(self.data[index], self.clock.now + KEEP * SECOND, [])
        for store in self.stores:
            begun.real.append(Upload(store.queues[0].store, KEEP, None if self.path is None else str(self.path)))
            begun.real[-1].write(begun.data[: CHUNK * TOGETHER])
        self.begun.append(begun)

    @precondition(lambda self: self.begun)
    @rule(data=st.data(), late=st.booleans(), swept=st.booleans())
    def end_upload(self, data: st.DataObject, late: bool, swept: bool) -> None:
        """Continue an upload, unless it has expired."""
        self.wait(KEEP + 1.0 if late else 1.0)
        if swept:
            self.do(lambda store: store.queues[0].payloads.sweep())
        begun = data.draw(st.sampled_from(self.begun))
        self.begun.remove(begun)
        real: list[Any] = []
        for store, upload in zip(self.stores, begun.real):
            try:
                upload.write(begun.data[CHUNK * TOGETHER :])
                reference, hold = upload.finish()
            except UploadGivenUp:
                assert begun.until <= self.clock.now
                upload.drop()
                self.met["given up"] += 1
            else:
                assert begun.until > self.clock.now
                real.append(blobs_held(store, reference, hold))
        if real:
            self.hold_blob(begun.data, real)

    @precondition(lambda self: self.holds)
    @rule(data=st.data())
    def lift_hold(self, data: st.DataObject) -> None:
        hold = data.draw(st.sampled_from(self.holds))
        self.holds.remove(hold)
        for held in hold.real:
            held.release()
        self.swept = True

    @rule(ring=st.integers(0, 1))
    def sweep_blobs(self, ring: int) -> None:
        self.do(lambda store: store.queues[ring].payloads.sweep() and None)
        self.swept = True

    # Referring to payloads.

    def more(self, data: st.DataObject) -> dict[str, Any]:
        """Draw other options of a message."""
        options: dict[str, Any] = {}
        if data.draw(st.integers(0, 5)) == 0:
            options["expires"] = data.draw(st.sampled_from([0, 20]))
        if data.draw(st.integers(0, 5)) == 0:
            # A call with a later time than its expiry is refused.
            options["not_before"] = -5 if "expires" in options else data.draw(st.sampled_from([-5, 30]))
        if data.draw(st.integers(0, 2)):
            # The ring's weigher finds all of them too heavy.
            options["weight"] = Weight(2, 1)
        return options

    def came(self, entries: list[tuple[Place, Reference]], options: dict[str, Any]) -> None:
        due = self.clock.now + options["not_before"] * SECOND if "not_before" in options else None
        self.put([self.entry(place, payload, options) for place, payload in entries], due)
        self.join_due()

    @rule(data=st.data(), place=places, index=which)
    def enqueue_blob(self, data: st.DataObject, place: Place, index: int) -> None:
        (ring, origin), blob, options = place, self.data[index], self.more(data)
        size = self.do(lambda store: store.queues[ring].payloads.enqueue(origin, blob, **options).size)
        assert size == len(blob)
        self.came([(place, self.reference(index))], options)
        self.swept = True

    def reference(self, index: int) -> Reference:
        return next(reference for reference, data in self.known.items() if data == self.data[index])

    @rule(data=st.data(), place=places, indices=st.lists(which, min_size=1, max_size=4), stored=st.booleans())
    def refer(self, data: st.DataObject, place: Place, indices: list[int], stored: bool) -> None:
        """Send many messages in one call, which is all or nothing."""
        for index in indices if stored else ():
            self.put_blob(index, "bytes")
        (ring, origin), options = place, self.more(data)
        payloads = [self.reference(index) for index in indices]
        messages = [Message(payload) for payload in payloads]
        expected = len(indices) if all(map(self.is_there, payloads)) else "BlobMissing"
        assert self.do(lambda store: store.queues[ring].enqueue_messages(origin, messages, **options).count) == expected
        if isinstance(expected, int):
            self.came([(place, payload) for payload in payloads], options)
        else:
            self.met[expected] += 1

    def message(self, data: st.DataObject, to: Place | None) -> Message:
        if data.draw(st.booleans()):
            return Message(self.reference(data.draw(which)))
        return super().message(data, to)

    def sent(self, command: Command, messages: list[Any], draft: Draft) -> list[Any]:
        entries = super().sent(command, messages, draft)
        if not all(self.is_there(message.payload) for message in messages if isinstance(message.payload, Reference)):
            raise Refused("BlobMissing")
        return entries

    # Reading.

    def look(self, delivery: Delivery) -> None:
        if isinstance(delivery.payload, Reference):
            with delivery.open_blob() as file:
                assert file.read() == self.known[delivery.payload]

    @rule(index=which)
    def read(self, index: int) -> None:
        payload = self.reference(index)

        def read(store: Store) -> bytes:
            with store.queues[0].payloads.open(payload.hash) as file:
                return file.read()

        assert self.do(read) == (self.data[index] if self.is_there(payload) else "BlobMissing")

    def forget_all(self) -> None:
        """Also check that no external payload is left in the database or in files."""
        super().forget_all()
        for hold in self.holds:
            assert hold.until <= self.clock.now
        self.holds = []
        for store, base in zip(self.stores, self.base):
            store.queues[0].payloads.sweep()
            assert self.listed(store) == {}
            assert store.count("upload", f"id > {base}") == store.count("chunk", f"upload > {base}") == 0
        assert self.path is None or not self.path.exists() or list(self.path.iterdir()) == []
        self.drop_begun()

    def drop_begun(self) -> None:
        for begun in self.begun:
            for upload in begun.real:
                upload.drop()
        self.begun = []

    def teardown(self) -> None:
        if hasattr(self, "begun"):
            self.drop_begun()
        super().teardown()


_folders = itertools.count(1)


def source(data: bytes, how: str) -> Any:
    if how == "pieces":
        return iter([data[:7], data[7:]] if data[7:] else [data])
    return io.BytesIO(data) if how == "file" else data


def blobs_held(store: Store, reference: Reference, hold: int) -> Any:
    return Held(store.queues[0].payloads.session, reference, hold)


def fresh_id(store: Store) -> int:
    with store.queues[0].store.writing() as unit:
        return int(unit.fresh_ids(1)[0])


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_random_external_payloads_on_sqlite(tmp_path: Path, clock: Clock, hasty: None) -> None:
    kind = type("BlobsHere", (Blobs,), {"folder": tmp_path})
    met = run([f"sqlite:///{tmp_path / 'queue.db'}"], clock, chosen(20, 35), kind)
    for situation in ("Processed", "Transferred", "BlobMissing", "given up", "drained"):
        assert met[situation], f"never met: {situation}"


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.timeout(0)
def test_random_external_payloads_on_both_stores(
    tmp_path: Path, postgres_server: Server, clock: Clock, hasty: None
) -> None:
    kind = type("BlobsHere", (Blobs,), {"folder": tmp_path})
    with postgres_server.database() as uri:
        run([f"sqlite:///{tmp_path / 'queue.db'}", uri], clock, chosen(4, 25), kind)
