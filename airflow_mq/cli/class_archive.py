"""`block class-archive`: an archive of Spark's classes, with which local jobs start sooner."""

from __future__ import annotations

from argparse import Namespace

from .command import command
from .session import Session


@command(example="$ block class-archive")
def class_archive(session: Session, args: Namespace) -> None:
    """Create an archive of Spark's classes, so that Spark jobs on this machine start sooner.

    Without the search for Spark's classes, a job of seconds takes about a quarter less time. The archive, about
    150 MB in your cache, is created once for this Java and this Spark. Each job with the master local[*] uses it. To
    undo it, remove the file.
    """
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
