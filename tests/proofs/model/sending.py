"""Rules that send."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from airflow_mq import (
    Message,
    Weight,
)

from .clock import SECOND
from .drawn import declarations, origins, weights
from .ground import Ground
from .plain import Pair
from .sides import Side


class Sending(Ground):
    """Every way to enqueue."""

    @rule(data=st.data())
    def enqueue(self, data: st.DataObject) -> None:
        self.send(data)

    @rule(data=st.data())
    def enqueue_more(self, data: st.DataObject) -> None:
        self.send(data)

    @rule(data=st.data())
    def enqueue_still_more(self, data: st.DataObject) -> None:
        self.send(data)

    def payload(self, data: st.DataObject) -> bytes:
        kind = data.draw(st.sampled_from(["plain", "plain", "plain", "weight", "weight", "answer", "enqueue"]), "kind")
        words = []
        if kind in ("weight", "enqueue"):
            words.append("w={},{}".format(*data.draw(weights)))
        if kind == "enqueue":
            words.append(f"enq={data.draw(origins)}/w=1,1+u{next(self.serial)}")
        if kind == "answer":
            words.append(
                data.draw(
                    st.sampled_from(
                        ["bad", "corrupt", "unsupported", "stack", "yield", "fail", "over=2,2", "over=40,40"]
                    )
                )
            )
        text = ";".join([*words, f"u{next(self.serial)}"])
        room = max(self.plain.config.heap_size - 5 - len(text) - 1, 0)
        return (text + data.draw(st.sampled_from(["", "", "#" + "x" * min(room, 12), "#" + "x" * room]))).encode()

    def send_row(self, origin: str, count: int) -> None:
        """Enqueue so many plain messages of an origin, in one call."""
        before = list(self.plain.ring)
        late = bool(self.plain.delayed)
        row = [f"w=1,1;u{next(self.serial)}".encode() for _ in range(count)]

        def real(side: Side) -> tuple[int, int, int]:
            told = side.queue.enqueue_messages(origin, row)
            return told.count, told.size, told.repeated

        self.both(real, lambda: self.plain.enqueue([(origin, payload, None, None) for payload in row]))
        if late:
            self.joins()
        self.adopt_newcomers(before)

    def send(self, data: st.DataObject) -> None:
        draw = data.draw
        self.happened()
        entries: list[tuple[str, bytes, str | None, Pair | None]] = []
        way = draw(st.sampled_from(["single", "single", "many", "many", "origins"]), "way")
        one = draw(origins)
        for _ in range(1 if way == "single" else draw(st.integers(1, 6))):
            origin = draw(origins) if way == "origins" else one
            key = None
            declared = draw(declarations) if draw(st.integers(0, 3)) == 0 else None
            if declared == (0, 0):
                declared = None
            payload = self.payload(data)
            if draw(st.integers(0, 5)) == 0:
                if self.keyed and draw(st.booleans()):
                    key, origin, payload = draw(st.sampled_from(self.keyed))
                    if draw(st.integers(0, 3)) == 0:
                        payload = self.payload(data)
                    if way != "origins" and origin != one:
                        key, origin = f"key {next(self.serial)}", one
                        payload = self.payload(data)
                else:
                    key = f"key {next(self.serial)}"
                    self.keyed.append((key, origin, payload))
            entries.append((origin, payload, key, declared))
        more: dict[str, Any] = {}
        if draw(st.integers(0, 4)) == 0:
            more["not_before"] = draw(st.sampled_from([-5, 0, 10, 30]))
        if draw(st.integers(0, 9)) == 0:
            more["expires"] = draw(st.sampled_from([-5, 20]))
        if draw(st.integers(0, 5)) == 0:
            more["weight"] = Weight(*draw(st.tuples(st.integers(1, 20), st.integers(1, 20))))
        before = list(self.plain.ring)
        late = [entry[0] for entry in self.plain.delayed]

        def real(side: Side) -> tuple[int, int, int]:
            if way == "single":
                origin, payload, key, declared = entries[0]
                own = dict(more)
                if declared:
                    own["weight"] = Weight(*declared)
                told = side.queue.enqueue_message(origin, payload, key=key, **own)
            else:
                messages = [
                    (o, p if not (k or d) else Message(p, key=k, weight=Weight(*d) if d else None))
                    for o, p, k, d in entries
                ]
                if way == "many":
                    told = side.queue.enqueue_messages(one, (message for _, message in messages), **more)
                else:
                    told = side.queue.enqueue_messages(iter(messages), **more)
            return told.count, told.size, told.repeated

        due = more.get("not_before")
        expires = more.get("expires")
        if due is not None and expires is not None and expires <= due:
            # No message of the call could be processed.
            assert self.sides.do(real) == "InvalidInput"
            return
        self.both(real, lambda: self.plain.enqueue(
            entries, weight=more.get("weight"),
            due=None if due is None else self.clock.now + due * SECOND,
            expires=None if expires is None else self.clock.now + expires * SECOND,
        ))  # fmt: skip
        if due is not None or late:
            self.joins()
        self.adopt_newcomers(before)
