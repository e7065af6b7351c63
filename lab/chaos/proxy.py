"""TCP proxy that hurts all its connections in one way until it is set to another."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

MODES = ("pass", "delay", "reset", "black hole", "slow close", "cut")
#: Seconds after which an end gives up a connection of which the other end acknowledges nothing.
UNACKNOWLEDGED = 4.0
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class FaultyProxy:
    """A proxy at its own address; `mode` and `port` may change while connections are open."""

    def __init__(self, port: int, address: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self.port = port
        self.mode = "pass"
        self.resets = 0
        self._listener = socket.create_server(address, backlog=200)
        self.own_port: int = self._listener.getsockname()[1]
        _start(self._accept)

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                _start(partial(self._connect, client))

    def _connect(self, client: socket.socket) -> None:
        while self.mode == "cut":
            time.sleep(0.05)
        try:
            server = socket.create_connection(("127.0.0.1", self.port), timeout=5)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        with client, server:
            back = _start(partial(self._pump, server, client))
            self._pump(client, server, may_reset=True)
            back.join()

    def _pump(self, source: socket.socket, target: socket.socket, *, may_reset: bool = False) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if self.mode == "delay":
                    time.sleep(random.uniform(0.05, 0.15))
                while self.mode == "black hole":
                    time.sleep(0.02)
                if self.mode == "cut" and not self._is_mended():
                    _end(source, target)
                    return
                if self.mode == "reset" and may_reset and random.random() < (0.2 if b"COMMIT" in data else 0.03):
                    self._reset(source, target, data)
                    return
                target.sendall(data)
        if self.mode == "slow close":
            time.sleep(random.uniform(2, 6))
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def _reset(self, client: socket.socket, server: socket.socket, data: bytes) -> None:
        """Reset both ends; most times the server gets the request first, and its answer is lost."""
        self.resets += 1
        with suppress(OSError):
            if random.random() < 0.7:
                server.sendall(data)
                time.sleep(0.03)
        _end(client, server)

    def _is_mended(self) -> bool:
        """Wait for the end of a cut, as long as TCP would; return whether it has ended."""
        deadline = time.monotonic() + UNACKNOWLEDGED
        while self.mode == "cut" and time.monotonic() < deadline:
            time.sleep(0.05)
        return self.mode != "cut"


def _end(*ends: socket.socket) -> None:
    """Reset connections."""
    for end in ends:
        with suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            end.shutdown(socket.SHUT_RD)
        end.close()


def _start(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread
