"""Which files may hold a SQLite store: plain ones, on a disk of this machine, below a root where one is set."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from airflow_mq.core.errors import AddressRefused, NetworkFileSystem, StoreMissing, StoreReplaced

SQLITE_FORM = "sqlite:///folder/store.db or, absolute, sqlite:////folder/store.db"
MOUNTS = Path("/proc/self/mountinfo")

# Shared between machines (or with the one around a virtual machine), by the names that Linux gives them. Those of a
# cluster lock well, but the memory that SQLite's writers share beside the file ends with the machine everywhere.
_NETWORK = (
    "9p acfs afs afp_fs auristorfs beegfs ceph cephfs cifs coda davfs drvfs fhgfs gfs gfs2 glusterfs gpfs "
    "lustre ncp ncpfs nfs nfs4 ocfs2 orangefs pnfs prl_fs pvfs2 shfs smb2 smb3 smbfs vboxsf vmhgfs wekafs "
    "alluxio azurefs blobfuse blobfuse2 cephfs-fuse curlftpfs davfs2 gcsfuse geesefs goofys gvfsd-fuse hdfs "
    "fuse_dfs juicefs mfs moosefs mountpoint-s3 obsfs ossfs quobyte rclone s3fs seaweedfs sshfs vmhgfs-fuse"
)
#: An attribute of a log (`-wal`): its own inode, and that of the file that it belongs to.
_BELONGS = "user.airflow_mq.file"
_OCTAL = re.compile(r"\\([0-7]{3})")


def checked_file(path: str, root: Path | None = None) -> Path:
    """Return where a file really is, given by its plain path; refuse what could not hold a store."""
    _check_name(path)
    try:
        place = _confined(Path(path), root)
        _refuse_strange_files(place)
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle, before Python 3.13
        reason = getattr(error, "strerror", None) or "links that lead in a circle"
        raise AddressRefused(f"the SQLite file {path!r} cannot be looked at: {reason}") from None
    return place


def lacking(path: Path) -> str | None:
    """What does not exist of a store on SQLite: its file, or the directory too; nothing, if it is there."""
    if os.path.isfile(path):
        return None
    return f"there is no file {path}" if os.path.isdir(path.parent) else f"there is no directory {path.parent}"


def missing_store(lacks: str) -> StoreMissing:
    """What to tell of a store that is not there."""
    return StoreMissing(
        f"{lacks}, and so no store; if there was one, look whether the path is right and its disk is mounted, "
        "else make one by `airflow-mq store upgrade`"
    )


def make_private(path: Path) -> None:
    """Create a file for its owner alone, if none is there; SQLite gives the files beside it the same rights.

    Where that fails, opening it fails too, and says why.
    """
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of a file; nothing if it is not there."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def mark_log(path: Path) -> None:
    """Record at the log of an open store which file it belongs to, where the file system keeps such attributes."""
    with suppress(OSError, AttributeError):
        said = _belonging(path)
        if said is not None and _marked(path) != said:
            os.setxattr(f"{path}-wal", _BELONGS, said)


def refuse_foreign_log(path: Path) -> None:
    """Raise `StoreReplaced` if the log beside a file was written for another one, which the file was put in place of.

    SQLite would apply it. A log that was copied together with its file has another inode than its mark says, and one
    without a mark may be anybody's: both are taken.
    """
    marked, said = _marked(path), _belonging(path)
    if marked is None or said is None or marked == said:
        return
    (log, file), (own, _) = marked.split(b":"), said.split(b":")
    if log == own:
        raise StoreReplaced(
            f"the log '{path}-wal' belongs to another file (inode {file.decode()}), which {str(path)!r} was put in "
            "place of: stop everything that uses the store, then put the file back that the log belongs to, or move "
            f"'{path}-wal' and '{path}-shm' away"
        )


def _belonging(path: Path) -> bytes | None:
    log, file = identity(Path(f"{path}-wal")), identity(path)
    return None if log is None or file is None else f"{log[1]}:{file[1]}".encode()


def _marked(path: Path) -> bytes | None:
    try:
        return os.getxattr(f"{path}-wal", _BELONGS)
    except (OSError, AttributeError):
        return None


def refuse_network_file_system(path: Path, *, mounts: Path = MOUNTS) -> None:
    """Raise `NetworkFileSystem` if the file is, or would be, on a disk of another machine.

    Told from the table of mounts, so the other machine is not waited for. Where there is no such table (only Linux
    has one), nothing can be told and nothing is refused.
    """
    try:
        table = mounts.read_text("utf-8", errors="surrogateescape")
    except OSError:
        return
    place = path.resolve()
    here = [(mount, kind) for mount, kind in _mounted(table) if place.is_relative_to(mount)]
    if not here:
        return
    # The deepest one counts; of several in one place the last, because it hides the others.
    mount, kind = max(enumerate(here), key=lambda item: (len(item[1][0].parts), item[0]))[1]
    if kind == "9p" and mount == Path("/"):
        return  # how some sandboxes show their own disk
    if kind.removeprefix("fuse.") in _NETWORK.split():
        raise NetworkFileSystem(
            f"{str(path)!r} is on a network file system ({kind}), where SQLite loses data; "
            "use a disk of this machine, or PostgreSQL"
        )


def _mounted(table: str) -> Iterator[tuple[Path, str]]:
    """Every mount point with the type of its file system, in the order of mounting."""
    for line in table.splitlines():
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(" "), after.split(" ")
        if len(fields) >= 5 and kinds[0]:
            yield Path(_OCTAL.sub(lambda found: chr(int(found[1], 8)), fields[4])), kinds[0]


def _check_name(path: str) -> None:
    if path.strip() == "" or path.startswith(":memory:"):
        raise AddressRefused(
            f"a store has to outlive its process, so it is never in memory; name a file: {SQLITE_FORM}"
        )
    if not path.isprintable():
        raise AddressRefused("the path of the SQLite file has a character that cannot be printed")
    if path.lower().startswith("file:") or "://" in path or "?" in path or "#" in path:
        raise AddressRefused(f"{path!r} is not a plain path: neither file: nor parameters (?, #) are taken")
    if path.startswith(("//", "~")):
        raise AddressRefused(f"the path {path!r} starts with // or ~, which nothing expands; write it out")
    if path.endswith("/") or path.rpartition("/")[2] in (".", ".."):
        raise AddressRefused(f"{path!r} names a folder; name the file of the store in it")


def _confined(path: Path, root: Path | None) -> Path:
    """The path with every link and `..` before the file's own name resolved; below the root where one is set."""
    if root is None:
        place = Path.cwd() / path
        return place.parent.resolve() / place.name
    base = root.resolve()
    if not root.is_absolute() or not base.is_dir():
        raise AddressRefused(f"the folder set for SQLite stores, {str(root)!r}, is not an absolute path of a folder")
    place = base / path
    resolved = place.parent.resolve() / place.name
    if ".." in path.parts or not resolved.is_relative_to(base):
        raise AddressRefused(f"{str(path)!r} is not in the folder set for SQLite stores, or has .. in it")
    return resolved


def _refuse_strange_files(place: Path) -> None:
    """Refuse links, which may be turned elsewhere between look and use, and what only looks like a file."""
    for name in (str(place), *(f"{place}-{kind}" for kind in ("wal", "shm", "journal"))):
        try:
            mode = os.lstat(name).st_mode
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(mode):
            kind = "a symbolic link" if stat.S_ISLNK(mode) else "a folder" if stat.S_ISDIR(mode) else "not a file"
            raise AddressRefused(f"{name!r} is {kind}; a store and the files beside it are plain files")
