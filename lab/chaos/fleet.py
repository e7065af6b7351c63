"""Client processes of a run: start, kill, stop and replace them."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import psutil

from .client import run_client, run_program

#: Starts clients as forks of a process that has imported what they need, and that has no threads.
FORKS = get_context("forkserver")
FORKS.set_forkserver_preload(["lab.chaos.warm"])
#: Clients of a run, and how many of each.
CREW = {"sender": 2, "service": 1, "planner": 1, "settler": 2, "holder": 1, "mover": 1, "housekeeper": 1}
#: Seconds after which a client that does not end counts as stuck.
PATIENCE = 40.0


class Fleet:
    """The clients of a run; a client that ends is replaced, as a supervisor would."""

    def __init__(self, folder: Path, uri: str, crew: Mapping[str, int] | None = None) -> None:
        self.folder, self.uri = folder, uri
        self.names = [(role, number) for role, count in (crew or CREW).items() for number in range(count)]
        #: Environments of single clients, beside that of this process.
        self.environments: dict[tuple[str, int], dict[str, str]] = {}
        #: Network namespace of the clients; by default that of this process.
        self.namespace: str | None = None
        self.deaths = 0
        self._killed: set[int | None] = set()
        self._processes: dict[tuple[str, int], ForkServerProcess] = {}
        self._lock = threading.Lock()
        self._is_ending = threading.Event()
        (folder / "tokens").mkdir(parents=True)

    def start(self) -> None:
        for name in self.names:
            self._spawn(name)
        threading.Thread(target=self._supervise, daemon=True).start()

    def pids(self) -> list[int]:
        with self._lock:
            return [process.pid for process in self._processes.values() if process.pid and process.is_alive()]

    def processes(self) -> list[psutil.Process]:
        return [psutil.Process(pid) for pid in self.pids() if psutil.pid_exists(pid)]

    def kill_one(self) -> None:
        """Kill a random client; the supervisor replaces it."""
        with self._lock:
            self._kill(random.choice(list(self._processes.values())))

    def kill_all(self) -> None:
        """Kill all clients; the supervisor replaces them."""
        with self._lock:
            for process in self._processes.values():
                self._kill(process)

    def send_signal(self, roles: Sequence[str], number: signal.Signals) -> None:
        with self._lock:
            for (role, _), process in self._processes.items():
                if role in roles and process.pid and process.is_alive():
                    os.kill(process.pid, number)

    def quiet(self) -> None:
        """Make the senders pause for good; the others go on."""
        (self.folder / "quiet").touch()

    def stop(self) -> int:
        """Stop all clients and return how many were stuck."""
        self._is_ending.set()
        (self.folder / "stop").touch()
        deadline, stuck = time.monotonic() + PATIENCE, 0
        for process in self._processes.values():
            process.join(max(0.1, deadline - time.monotonic()))
            if process.is_alive():
                stuck += 1
                process.kill()
                process.join()
        return stuck

    def _kill(self, process: ForkServerProcess) -> None:
        self._killed.add(process.pid)
        process.kill()

    def _spawn(self, name: tuple[str, int]) -> None:
        place = (*name, self.uri, self.folder, os.getpid())
        environment = self.environments.get(name)
        process = (
            FORKS.Process(target=run_client, args=(*place, self.namespace))
            if environment is None
            else FORKS.Process(target=run_program, args=(*place, environment))
        )
        process.start()
        self._processes[name] = process

    def _supervise(self) -> None:
        while not self._is_ending.wait(0.1):
            with self._lock:
                for name, process in list(self._processes.items()):
                    if not process.is_alive() and not self._is_ending.is_set():
                        self.deaths += process.pid not in self._killed
                        self._spawn(name)
