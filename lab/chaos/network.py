"""Network between two machines: a network namespace for the clients, and rules that drop their packets."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

CLONE_NEWNET = 0x40000000
CHAINS = (("input", "dport"), ("output", "sport"))


def enter(namespace: str) -> None:
    """Move this process, which has one thread, to a network namespace."""
    with (Path("/run/netns") / namespace).open() as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {namespace!r}")


def can_separate() -> bool:
    """Return whether this user may make network namespaces, and drop packets in them."""
    if shutil.which("ip") is None or shutil.which("nft") is None:
        return False
    try:
        with Network.opened() as network:
            network.lose(1)
        return True
    except (OSError, subprocess.CalledProcessError):
        return False


@dataclass(frozen=True)
class Network:
    """A network namespace, and the address by which it reaches the machine."""

    namespace: str
    server: str

    @classmethod
    @contextmanager
    def opened(cls) -> Iterator[Network]:
        """Make a namespace and its link to this machine, and remove both at the end."""
        number = os.getpid() % (64 * 256)
        subnet = f"10.231.{number // 64}"
        server, client = (f"{subnet}.{number % 64 * 4 + host}" for host in (1, 2))
        namespace = f"mq-chaos-{os.getpid()}"
        outer, inner = f"mqo{os.getpid()}", f"mqi{os.getpid()}"
        _run("ip", "netns", "add", namespace)
        try:
            _run("ip", "link", "add", outer, "type", "veth", "peer", "name", inner, "netns", namespace)
            _run("ip", "address", "add", f"{server}/30", "dev", outer)
            _run("ip", "link", "set", outer, "up")
            _run("ip", "-n", namespace, "address", "add", f"{client}/30", "dev", inner)
            _run("ip", "-n", namespace, "link", "set", inner, "up")
            yield cls(namespace, server)
        finally:
            # The link goes with the namespace, as soon as no process uses that any more.
            subprocess.run(["ip", "link", "delete", outer], check=False, capture_output=True)
            _run("ip", "netns", "delete", namespace)

    def lose(self, percent: int) -> None:
        """Drop this share of the packets in each direction."""
        self._drop({chain: f"numgen random mod 100 < {percent}" for chain, _ in CHAINS})

    def cut(self) -> None:
        """Drop all packets."""
        self._drop({chain: "meta l4proto tcp" for chain, _ in CHAINS})

    def silence(self, ports: Collection[int]) -> None:
        """Drop all packets of the connections with these ports of the clients."""
        chosen = ", ".join(map(str, sorted(ports)))
        self._drop({chain: f"tcp {end} {{ {chosen} }}" for chain, end in CHAINS})

    def heal(self) -> None:
        """Drop no packet any more."""
        _run("ip", "netns", "exec", self.namespace, "nft", "flush", "ruleset")

    def _drop(self, matches: dict[str, str]) -> None:
        lines = ["add table inet chaos"]
        for chain, match in matches.items():
            lines.append(f"add chain inet chaos {chain} {{ type filter hook {chain} priority 0; }}")
            lines.append(f"add rule inet chaos {chain} {match} counter drop")
        _run("ip", "netns", "exec", self.namespace, "nft", "; ".join(lines))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
