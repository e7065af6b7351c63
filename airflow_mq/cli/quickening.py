"""`spark`: what makes Spark's jobs on this machine start sooner."""

from __future__ import annotations

from argparse import Namespace

from .command import Command
from .session import Session


def archive(session: Session, args: Namespace) -> None:
    """Make the archive of Spark's classes, unless it is there."""
    from ..spark.local import archive_path, make_archive

    path = archive_path()
    known = path.is_file()
    if not known:
        session.out.remark("starting Spark twice, to see which classes it loads; this takes about a minute")
        make_archive()
    size = path.stat().st_size
    session.out.value({"archive": str(path), "bytes": size, "made": not known})
    session.out.remark(f"{'found' if known else 'made'} {path} ({size / 2**20:,.0f} MiB)")
    session.out.remark("jobs with the master local[*] use it from now on; for another Java or Spark make another one")


CLASS_ARCHIVE = (
    Command(
        "class-archive", "make an archive of the classes that Spark loads", archive,
        about="A job of seconds takes about a quarter less time where a JVM need not look for Spark's classes. An "
        "archive of them, about 150 MB in your cache, is made once for this Java and this Spark, and used by each "
        "job with the master local[*]. Removing the file is all that it takes to undo it.",
        example="$ block class-archive",
    ),
)  # fmt: skip
