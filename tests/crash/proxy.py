"""A wire between a client and its server that can be cut right before or right after a word was passed on."""

from __future__ import annotations

import re
import select
import socket
import threading
from contextlib import suppress
from types import TracebackType


def error_response(severity: str, state: str, text: str) -> bytes:
    """The message by which a server reports an error."""
    fields = {"S": severity, "V": severity, "C": state, "M": text}
    body = b"".join(f"{name}{value}\0".encode() for name, value in fields.items()) + b"\0"
    return b"E" + (len(body) + 4).to_bytes(4, "big") + body


class Proxy:
    """Listens on a port of its own and passes everything on, until it is told to cut."""

    def __init__(self, uri: str) -> None:
        found = re.match(r"(postgresql://[^@]+@)127\.0\.0\.1:(\d+)(/.*)", uri)
        assert found
        self._target = int(found[2])
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.uri = f"{found[1]}127.0.0.1:{self._listener.getsockname()[1]}{found[3]}"
        self._word: bytes | None = None
        self._after = True
        self._instead: bytes | None = None
        self._silence: bytes | None = None
        self._midway = False
        self.is_silent = threading.Event()
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def cut_after(self, word: bytes = b"") -> None:
        """Once the client says `word` (or anything): pass it on, wait for the answer, and keep it."""
        self._after, self._word = True, word

    def cut_before(self, word: bytes = b"") -> None:
        """Once the client says `word` (or anything): do not pass it on."""
        self._after, self._word = False, word

    def answer(self, word: bytes, answer: bytes) -> None:
        """Once the client sends `word`: pass it on, and answer this instead of the server."""
        self._after, self._word, self._instead = True, word, answer

    def fall_silent(self, word: bytes = b"", *, midway: bool = False) -> None:
        """Once the client sends `word` (or anything): pass it on, and nothing more for anybody; cut no connection.

        :param midway: pass half of the answer on before.
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
        # Where one end is gone with words still on their way, the wire is cut, too.
        with suppress(ConnectionError), client, socket.create_connection(("127.0.0.1", self._target)) as server:
            while not self._over.is_set():
                if self.is_silent.is_set():
                    self._over.wait(0.05)
                    continue
                ready = select.select([client, server], [], [], 0.05)[0]
                for one in ready:
                    data = one.recv(65_536)
                    if not data:
                        return
                    if one is server:
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
