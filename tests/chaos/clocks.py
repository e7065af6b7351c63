"""Skewed clocks: a library that shifts the wall clock of a program, compiled when it is needed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

#: The functions by which Python and libpq read the wall clock.
SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
static long shift(void) { const char *text = getenv("MQ_CHAOS_SKEW"); return text ? atol(text) : 0; }
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
    library = folder / "skew.so"
    if not library.exists():
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-o", str(library), "-x", "c", "-", "-ldl"], check=True, input=SOURCE.encode()
        )
    return {"LD_PRELOAD": str(library), "MQ_CHAOS_SKEW": str(seconds)}
