"""The image of `docker/` built without a daemon, and the services of its compose file, each in a network of its own.

Buildah builds the image from the Dockerfile. No registry of images can be reached, so its base image is a stand-in:
Debian's own Python on a fresh Debian. A service runs in the image's files, as the compose file describes it, with its
own address behind a bridge. All services share these files, which containers would not.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import yaml

from tests.debian import debian_program, libraries

REPOSITORY = Path(__file__).parents[3]
DOCKER = REPOSITORY / "docker"
IMAGE = "airflow-mq:0.4"
SERVICES: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text("utf-8"))["services"]
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
#: Packages of the base image, and what makes them look like the official one.
PACKAGES = "ca-certificates,python3,python3-pip,python3-venv"
AS_PYTHON = (
    "ln -s /usr/bin/python3 /usr/local/bin/python && ln -s /usr/bin/pip3 /usr/local/bin/pip"
    " && rm -f /usr/lib/python3*/EXTERNALLY-MANAGED"
)
BRIDGE, NETWORK = "mq-compose", "10.77.0"
PATIENCE = 240.0


class Buildah:
    """Buildah with storage in a folder, without a daemon and without namespaces of users."""

    def __init__(self, folder: Path) -> None:
        self._program = debian_program("buildah", "buildah")
        policy = folder / "policy.json"
        policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
        self._global = ["--root", str(folder / "storage"), "--runroot", str(folder / "run")]
        self._policy = ["--signature-policy", str(policy)]
        self.environment = {**os.environ, **libraries(self._program), "BUILDAH_ISOLATION": "chroot"}

    def command(self, *arguments: str) -> list[str]:
        return [str(self._program), *self._global, *arguments]

    def run(self, *arguments: str) -> str:
        """Run a command of Buildah and return its last line; print its output if it fails."""
        done = subprocess.run(
            self.command(*arguments), env=self.environment, cwd=REPOSITORY, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"buildah {arguments[0]} failed:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
        return done.stdout.strip().rpartition("\n")[2]

    def build(self, folder: Path) -> None:
        """Build the image of the Dockerfile on a base image of Debian's packages."""
        (base,) = re.findall(r"^FROM (\S+)", (DOCKER / "Dockerfile").read_text("utf-8"), re.MULTILINE)
        _debian(folder / "base")
        container = self.run("from", "scratch")
        self.run("add", container, str(folder / "base"), "/")
        self.run("commit", *self._policy, container, base)
        self.run("rm", container)
        shutil.rmtree(folder / "base")
        where = ["--file", str(DOCKER / "Dockerfile"), "--tag", IMAGE, str(REPOSITORY)]
        mounted = f"{CERTIFICATES}:{CERTIFICATES}:ro"
        self.run("build", *self._policy, "--pull-never", "--network", "host", "--volume", mounted, *where)

    def container(self) -> str:
        """Return a new container of the image."""
        return self.run("from", *self._policy, "--pull-never", IMAGE)

    def start(self, command: list[str], log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(command, stdout=output, stderr=output, env=self.environment, start_new_session=True)


def _debian(folder: Path) -> None:
    """Make the files of a Debian with Python."""
    program = debian_program("debootstrap", "debootstrap")
    scripts = program.parents[1] / "share" / "debootstrap"
    command = [str(program), "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(folder)]
    environment = {**os.environ, "DEBOOTSTRAP_DIR": str(scripts)}
    subprocess.run(["sh", *command], env=environment, check=True, capture_output=True)
    subprocess.run(["chroot", str(folder), "sh", "-c", AS_PYTHON], check=True)


class Compose:
    """The services of the compose file: start, ask for health, run a command beside one, end."""

    def __init__(self, buildah: Buildah, folder: Path, variables: Mapping[str, str]) -> None:
        self._buildah = buildah
        self._container = buildah.container()
        self._folder = folder
        self._variables = variables
        self._addresses: dict[str, str] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        for name in ("logs", "data"):
            (folder / name).mkdir()
            os.chown(folder / name, 50_000, 0)
        self._hosts = folder / "hosts"
        self._hosts.write_text(f"127.0.0.1 localhost\n{NETWORK}.1 postgres\n")

    def join(self, name: str) -> None:
        """Give a service an address of its own, which all others know by its name."""
        number = len(self._addresses) + 2
        address = self._addresses[name] = f"{NETWORK}.{number}"
        with self._hosts.open("a") as file:
            file.write(f"{address} {name}\n")
        outside, inside = f"mq-out-{number}", f"mq-in-{number}"
        for words in (
            f"netns add mq-{name}",
            f"link add {outside} type veth peer name {inside} netns mq-{name}",
            f"link set {outside} master {BRIDGE} up",
            f"-n mq-{name} addr add {address}/24 dev {inside}",
            f"-n mq-{name} link set {inside} up",
            f"-n mq-{name} link set lo up",
        ):
            subprocess.run(["ip", *words.split()], check=True)

    def start(self, name: str, place: str | None = None) -> subprocess.Popen[bytes]:
        """Start a service as the compose file describes it."""
        place = place or name
        self.join(place)
        process = self._buildah.start(self._inside(name, place, SERVICES[name]["command"]), self.log(place))
        self._running[place] = process
        return process

    def execute(self, name: str, *command: str, place: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command beside a service, as `docker compose exec` does."""
        words = self._inside(name, place or name, list(command))
        return subprocess.run(words, env=self._buildah.environment, capture_output=True, text=True, check=False)

    def is_healthy(self, name: str, place: str | None = None) -> bool:
        test = SERVICES[name]["healthcheck"]["test"]
        assert test[0] == "CMD"
        return self.execute(name, *test[1:], place=place).returncode == 0

    def await_health(self, name: str, place: str | None = None) -> None:
        place = place or name
        wait_for(
            lambda: self._running[place].poll() is not None or self.is_healthy(name, place),
            lambda: f"{place} is not healthy:\n{self.tail(place)}",
        )
        assert self._running[place].poll() is None, self.tail(place)

    def processes(self, place: str) -> list[psutil.Process]:
        """Return the processes of a service that see the image's files."""
        pids = subprocess.run(["ip", "netns", "pids", f"mq-{place}"], capture_output=True, text=True, check=True)
        return [psutil.Process(int(pid)) for pid in pids.stdout.split() if os.readlink(f"/proc/{pid}/root") != "/"]

    def close(self) -> None:
        for number, place in enumerate(self._addresses, 2):
            for process in self.processes(place):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            if place in self._running:
                self._running[place].wait(30)
            subprocess.run(["ip", "link", "del", f"mq-out-{number}"], check=True)
            subprocess.run(["ip", "netns", "del", f"mq-{place}"], check=True)

    def log(self, place: str) -> Path:
        return self._folder / f"{place}.log"

    def tail(self, place: str) -> str:
        return self.log(place).read_text("utf-8", "replace")[-4000:]

    def _inside(self, name: str, place: str, command: list[str]) -> list[str]:
        """Return the command line that runs a command in the image's files and in the service's network."""
        service = SERVICES[name]
        volumes = [f"{self._hosts}:/etc/hosts:ro", *(f"{self._folder}/{one}" for one in service.get("volumes", ()))]
        environment = {key: self._filled(value) for key, value in service.get("environment", {}).items()}
        options = [
            "--user", service["user"], "--cap-drop", "ALL", "--network", "host", "--hostname", place, "--no-hosts",
            *(word for one in volumes for word in ("--volume", one)),
            *(word for pair in environment.items() for word in ("--env", "=".join(pair))),
        ]  # fmt: skip
        entry = ["tini", "--", "sh", "/opt/airflow-mq/docker/entrypoint.sh"]
        run = self._buildah.command("run", *options, self._container, "--", *entry, *command)
        return ["ip", "netns", "exec", f"mq-{place}", *run]

    def _filled(self, value: str) -> str:
        """Return a value with the variables of `.env`."""
        return re.sub(r"\$\{(\w+):\?[^}]*\}", lambda found: self._variables[found[1]], value)


@contextlib.contextmanager
def bridge() -> Iterator[str]:
    """Make the network of the services, and yield this machine's address in it."""
    for words in (f"link add {BRIDGE} type bridge", f"addr add {NETWORK}.1/24 dev {BRIDGE}", f"link set {BRIDGE} up"):
        subprocess.run(["ip", *words.split()], check=True)
    try:
        yield f"{NETWORK}.1"
    finally:
        subprocess.run(["ip", "link", "del", BRIDGE], check=True)


def wait_for(condition: Callable[[], bool], text: Callable[[], str]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(text())
        time.sleep(1)
