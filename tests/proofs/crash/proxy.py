"""A TCP proxy that cuts the connection before or after a given word."""

from __future__ import annotations

import re
import select
import socket
import threading
from contextlib import suppress
from types import TracebackType


def error_response(severity: str, state: str, text: str) -> bytes:
    """Return the protocol message by which a server reports an error."""
    fields = {"S": severity, "V": severity, "C": state, "M": text}
    body = b"".join(f"{name}{value}\0".encode() for name, value in fields.items()) + b"\0"
    return b"E" + (len(body) + 4).to_bytes(4, "big") + body


class Proxy:
    """A proxy that forwards data on its own port until it is set to cut."""

    def __init__(self, uri: str) -> None:
        match = re.match(r"(postgresql://[^@]+@)127\.0\.0\.1:(\d+)(/.*)", uri)
        assert match
        self._target = int(match[2])
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.uri = f"{match[1]}127.0.0.1:{self._listener.getsockname()[1]}{match[3]}"
        self._word: bytes | None = None
        self._after = True
        self._instead: bytes | None = None
        self._silence: bytes | None = None
        self._midway = False
        self.is_silent = threading.Event()
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def cut_after(self, word: bytes = b"") -> None:
        """When the client sends `word` (or anything), forward it, wait for the answer, and drop the answer."""
        self._after, self._word = True, word

    def cut_before(self, word: bytes = b"") -> None:
        """When the client sends `word` (or anything), drop it."""
        self._after, self._word = False, word

    def answer(self, word: bytes, answer: bytes) -> None:
        """When the client sends `word`, forward it, and reply with this answer instead of the server's."""
        self._after, self._word, self._instead = True, word, answer

    def fall_silent(self, word: bytes = b"", *, midway: bool = False) -> None:
        """When the client sends `word` (or anything), forward it, then forward nothing more, but keep connections open.

        :param midway: forward half of the answer first.
        """
        self._silence, self._midway = word, midway

    def _is_silenced(self, data: bytes, client: socket.socket, server: socket.socket) -> bool:
        if self._silence is None or self._silence not in data:
            return False
        self._silence = None
        server.sendall(data)
        if self._midway:
            answer = server.recv(65_536)
            client.sendall(answer[: len(answer) // 2])
        self.is_silent.set()
        return True

    def __enter__(self) -> Proxy:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _start(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._over.is_set():
            if select.select([self._listener], [], [], 0.05)[0]:
                self._start(self._pass_on, self._listener.accept()[0])

    def _pass_on(self, client: socket.socket) -> None:
        # If one end closes with data in transit, close the other one, too.
        with suppress(ConnectionError), client, socket.create_connection(("127.0.0.1", self._target)) as server:
            while not self._over.is_set():
                if self.is_silent.is_set():
                    self._over.wait(0.05)
                    continue
                ready = select.select([client, server], [], [], 0.05)[0]
                for end in ready:
                    data = end.recv(65_536)
                    if not data:
                        return
                    if end is server:
                        client.sendall(data)
                        continue
                    if self._is_silenced(data, client, server):
                        break
                    if self._word is not None and self._word in data:
                        self._word = None
                        if self._after:
                            server.sendall(data)
                            server.recv(65_536)
                        if self._instead is not None:
                            client.sendall(self._instead)
                            self._instead = None
                        return
                    server.sendall(data)
