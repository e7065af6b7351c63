"""A server that speaks S3, for tests: Versity's gateway over a folder, on loopback.

Go builds it once into the user's cache, from the modules that `tests/versitygw/go.sum` names by checksum.
"""

from __future__ import annotations

import fcntl
import os
import select
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import fsspec
import pytest

from airflow_mq.spark.java import cache_folder
from airflow_mq.testing.loopback import free_port

VERSION = "1.8.0"
MODULE = Path(__file__).parent / "versitygw"
COMMAND = "github.com/versity/versitygw/cmd/versitygw"
#: Without optimizations, which take a third of the time, and without what only debuggers and C need.
FLAGS = ("-mod=readonly", "-ldflags=-s -w", "-gcflags=all=-N -l -dwarf=false")
KEY, SECRET, REGION = "key", "secret", "us-east-1"


def program() -> Path:
    """Return the server's program, built if it is not in the cache; without Go, skip the test."""
    built = cache_folder() / f"versitygw-{VERSION}"
    if built.exists():
        return built
    go = shutil.which("go")
    if go is None:
        pytest.skip("go is not installed, and the S3 server is not in the cache")
    # One process builds it, in about a minute; the others wait.
    with open(f"{built}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            build = [go, "build", *FLAGS, "-o", f"{built}.new", COMMAND]
            how = {"cwd": MODULE, "env": {**os.environ, "CGO_ENABLED": "0"}, "timeout": 1500}
            done = subprocess.run(build, capture_output=True, text=True, check=False, **how)
            assert done.returncode == 0, f"could not build the S3 server: {done.stderr[-2000:]}"
            os.replace(f"{built}.new", built)
    return built


class S3Server:
    """A server over a folder; it can be killed and started again at the same address, with what it holds."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._program = program()
        self._process: subprocess.Popen[bytes] | None = None
        for name in ("objects", "versions"):
            (folder / name).mkdir()

    def start(self) -> None:
        how = ["--port", f"127.0.0.1:{self.port}", "--access", KEY, "--secret", SECRET, "--region", REGION, "--quiet"]
        store = ["posix", "--versioning-dir", str(self.folder / "versions"), str(self.folder / "objects")]
        with open(self.folder / "server.log", "ab") as log:
            self._process = subprocess.Popen([self._program, *how, *store], stdout=log, stderr=log)
        until = time.monotonic() + 60
        while time.monotonic() < until and self._process.poll() is None:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.02)
        raise RuntimeError(f"the S3 server did not start: {(self.folder / 'server.log').read_text()[-2000:]}")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def restart(self) -> None:
        """Kill the server, and start it again."""
        self.kill()
        self.start()

    def client_settings(self, url: str | None = None) -> dict[str, Any]:
        """Return the arguments of a client of its own, which shares no connection with another one."""
        return {
            "endpoint_url": url or self.url, "key": KEY, "secret": SECRET, "client_kwargs": {"region_name": REGION},
            "skip_instance_cache": True,
        }  # fmt: skip

    def files(self, url: str | None = None, **how: Any) -> Any:
        """Return a client."""
        return fsspec.filesystem("s3", **self.client_settings(url), **how)

    def environment(self, url: str | None = None) -> dict[str, str]:
        """Return the variables by which a process finds the server behind plain `s3://` addresses."""
        return {
            "AWS_ENDPOINT_URL": url or self.url, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": REGION, "AWS_REGION": REGION, "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_MAX_ATTEMPTS": "1",
        }  # fmt: skip


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """Run a server with two buckets, of which `versioned` keeps versions."""
    server = S3Server(folder)
    try:
        server.start()
        files = server.files()
        for bucket in ("plain", "versioned"):
            files.call_s3("create_bucket", Bucket=bucket)
        versioning = {"Status": "Enabled"}
        files.call_s3("put_bucket_versioning", Bucket="versioned", VersioningConfiguration=versioning)
        yield server
    finally:
        server.kill()


class CuttingProxy:
    """Passes connections on to a server, and cuts those that carry certain requests."""

    def __init__(self, server: S3Server) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._marker, self._left, self._answered = b"", 0, False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, marker: bytes, times: int, *, answered: bool) -> None:
        """Cut the next requests that contain a marker: before the server has them, or once it has answered them."""
        self._marker, self._left, self._answered = marker, times, answered

    @property
    def left(self) -> int:
        """How many requests are still to be cut."""
        return self._left

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError), socket.create_connection(("127.0.0.1", self._server.port), 5) as server:
            is_cut = False
            while ready := select.select([client, server], [], [])[0]:
                for side in ready:
                    data = side.recv(1 << 16)
                    if side is client and self._left and self._marker in data.lower():
                        self._left -= 1
                        is_cut = True
                    if not data or (is_cut and side is (server if self._answered else client)):
                        return
                    (server if side is client else client).sendall(data)
