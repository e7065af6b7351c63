"""Skewed clocks: a library that shifts the wall clock of a program, compiled when it is needed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

#: The functions by which Python and libpq read the wall clock.
SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long shift(void) {
    const char *text = getenv("MQ_CHAOS_SKEW"), *path = getenv("MQ_CHAOS_CLOCK");
    char read_text[24] = "0";
    if (text) return atol(text);
    int file = path ? open(path, O_RDONLY) : -1;
    if (file < 0) return 0;
    ssize_t length = read(file, read_text, sizeof read_text - 1);
    close(file);
    return length > 0 ? atol(read_text) : 0;
}
int clock_gettime(clockid_t id, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int status = real(id, at);
    if (!status && id == CLOCK_REALTIME) at->tv_sec += shift();
    return status;
}
int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    int status = clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return status;
}
time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"""


def can_skew() -> bool:
    """Return whether this machine has a C compiler."""
    return shutil.which("cc") is not None


def skew(folder: Path, seconds: int) -> dict[str, str]:
    """Return the environment of a program whose wall clock is ahead by some seconds."""
    return {"LD_PRELOAD": str(_library(folder)), "MQ_CHAOS_SKEW": str(seconds)}


class Clock:
    """The wall clock of programs, which jumps while they run."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "clock"
        self.set(0)
        self.environment = {"LD_PRELOAD": str(_library(folder)), "MQ_CHAOS_CLOCK": str(self._path)}

    def set(self, seconds: int) -> None:
        """Set the clock ahead by some seconds."""
        draft = self._path.with_suffix(".draft")
        draft.write_text(str(seconds))
        draft.chmod(0o644)
        draft.rename(self._path)


def _library(folder: Path) -> Path:
    library = folder / "skew.so"
    if not library.exists():
        command = ["cc", "-shared", "-fPIC", "-o", str(library), "-x", "c", "-", "-ldl"]
        subprocess.run(command, check=True, input=SOURCE.encode())
        library.chmod(0o755)
    return library
