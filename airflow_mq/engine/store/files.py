"""Checks of SQLite files: plain files on a disk of this machine, below a root where one is set."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from airflow_mq.engine.rules.errors import (
    AddressRefused,
    NetworkFileSystem,
    StoreFull,
    StoreMissing,
    StoreReadOnly,
    StoreReplaced,
    StoreUnreachable,
)

SQLITE_FORM = "sqlite:///folder/store.db or, absolute, sqlite:////folder/store.db"
MOUNTS = Path("/proc/self/mountinfo")

# File systems shared between machines or with the host of a virtual machine, by their Linux names. Cluster file
# systems lock well, but SQLite's shared memory beside the file never reaches another machine.
_NETWORK = (
    "9p acfs afs afp_fs auristorfs beegfs ceph cephfs cifs coda davfs drvfs fhgfs gfs gfs2 glusterfs gpfs "
    "lustre ncp ncpfs nfs nfs4 ocfs2 orangefs pnfs prl_fs pvfs2 shfs smb2 smb3 smbfs vboxsf vmhgfs wekafs "
    "alluxio azurefs blobfuse blobfuse2 cephfs-fuse curlftpfs davfs2 gcsfuse geesefs goofys gvfsd-fuse hdfs "
    "fuse_dfs juicefs mfs moosefs mountpoint-s3 obsfs ossfs quobyte rclone s3fs seaweedfs sshfs vmhgfs-fuse"
)
#: Extended attribute of a log (`-wal`): its inode, and the inode of its database file.
_BELONGS = "user.airflow_mq.file"
_OCTAL = re.compile(r"\\([0-7]{3})")


def checked_file(path: str, root: Path | None = None) -> Path:
    """Return the resolved path of a file; raise `AddressRefused` if it could not hold a store."""
    _check_name(path)
    try:
        place = _confined(Path(path), root)
        _refuse_strange_files(place)
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle, before Python 3.13
        reason = getattr(error, "strerror", None) or "links that lead in a circle"
        raise AddressRefused(f"the SQLite file {_quoted(path)} cannot be looked at: {reason}") from None
    return place


def lacking(path: Path) -> str | None:
    """Return a text that names the missing file or directory of a SQLite store, or `None`."""
    if os.path.isfile(path):
        return None
    return f"there is no file {path}" if os.path.isdir(path.parent) else f"there is no directory {path.parent}"


def missing_store(lacks: str) -> StoreMissing:
    """Return the error for a missing store."""
    return StoreMissing(
        f"store not found: {lacks}; to create it, run `airflow-mq store upgrade`; if there was one, check its path and "
        "that its disk is mounted"
    )


def replaced_store(path: Path) -> StoreMissing | StoreReplaced:
    """Return the error for a store that was opened, and whose file is no longer at its path."""
    if lacks := lacking(path):
        return missing_store(lacks)
    return StoreReplaced(
        f"the SQLite file {str(path)!r} was replaced by another one while it was open, and nothing "
        "was written to that one: make sure that it is the right file, and that no '-wal' and '-shm' of the old one "
        "are beside it, then open the queue anew"
    )


def read_only_store(path: Path) -> StoreReadOnly:
    """Return the error for a store that this user cannot write to, with the first place that is read-only."""
    places = [path, Path(f"{path}-wal"), Path(f"{path}-shm"), path.parent]
    place = next((place for place in places if place.exists() and not os.access(place, os.W_OK)), path)
    return StoreReadOnly(
        f"cannot write to {str(place)!r}: it is read-only for this user, or its disk is mounted read-only; give this "
        "user write access to the SQLite file, to the '-wal' and '-shm' beside it, and to their folder, then retry"
    )


def is_mounted_read_only(path: Path) -> bool:
    """Return whether the disk of a file takes no writes from any user; SQLite reports that it cannot open the file."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def full_disk(path: Path) -> StoreFull:
    """Return the error for a store whose disk is full."""
    return StoreFull(f"the disk of the SQLite file {str(path)!r} is full: nothing was changed; free space, then retry")


def unusable_store(path: Path, reason: str) -> StoreUnreachable:
    """Return the error for a file that SQLite cannot open, read or write."""
    return StoreUnreachable(
        f"the SQLite file {str(path)!r} cannot be used: {reason}; check that this user may read and write the file and "
        "its folder, and that the disk is healthy"
    )


def make_private(path: Path) -> None:
    """Create a file that only its owner may use, if there is none; SQLite copies its rights to the files beside it.

    Where this fails, opening the file fails too, with the reason.
    """
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a file, or `None` if it does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def mark_log(path: Path) -> None:
    """Record in an attribute of the log which file it belongs to, where the file system has such attributes."""
    with suppress(OSError, AttributeError):
        mark = _belonging(path)
        if mark is not None and _marked(path) != mark:
            os.setxattr(f"{path}-wal", _BELONGS, mark)


def refuse_foreign_log(path: Path) -> None:
    """Raise `StoreReplaced` if the log beside a file was written for an earlier file at this path.

    SQLite would apply such a log. A log that was copied together with its file has another inode than its mark
    records, and a log without a mark may belong to any file: both pass.
    """
    marked, current = _marked(path), _belonging(path)
    if marked is None or current is None or marked == current:
        return
    (log, file), (own, _) = marked.split(b":"), current.split(b":")
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

    The check reads the table of mounts, so it never waits for the other machine. Only Linux has such a table; elsewhere
    every file passes.
    """
    try:
        table = mounts.read_text("utf-8", errors="surrogateescape")
    except OSError:
        return
    place = path.resolve()
    here = [(mount, kind) for mount, kind in _mounted(table) if place.is_relative_to(mount)]
    if not here:
        return
    # The deepest mount counts; of several at one place the last, because it hides the others.
    mount, kind = max(enumerate(here), key=lambda item: (len(item[1][0].parts), item[0]))[1]
    if kind == "9p" and mount == Path("/"):
        return  # how some sandboxes show their own disk
    if kind.removeprefix("fuse.") in _NETWORK.split():
        raise NetworkFileSystem(
            f"{str(path)!r} is on a network file system ({kind}), where SQLite loses data; "
            "use a disk of this machine, or PostgreSQL"
        )


def _mounted(table: str) -> Iterator[tuple[Path, str]]:
    """Yield every mount point with its type of file system, in the order of mounting."""
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
        raise AddressRefused(
            "the address of the SQLite file is not a plain path: neither file: nor parameters (?, #) are taken"
        )
    if path.startswith(("//", "~")):
        raise AddressRefused(f"the path {_quoted(path)} starts with // or ~, which nothing expands; write it out")
    if path.endswith("/") or path.rpartition("/")[2] in (".", ".."):
        raise AddressRefused(f"{_quoted(path)} names a folder; name the file of the store in it")


def _quoted(path: str) -> str:
    """Return a path for an error, cut. One with an `@` may be the address of a server, with its password."""
    return "of the address" if "@" in path else f"{path!r:.200}"


def _confined(path: Path, root: Path | None) -> Path:
    """Return the path with links and `..` resolved in its folders; require it below the root, if there is one."""
    if root is None:
        place = Path.cwd() / path
        return place.parent.resolve() / place.name
    base = root.resolve()
    if not root.is_absolute() or not base.is_dir():
        raise AddressRefused(f"the folder set for SQLite stores, {str(root)!r}, is not an absolute path of a folder")
    place = base / path
    # One text for all others: links in a circle must not reveal where there are any.
    with suppress(OSError, RuntimeError):
        resolved = place.parent.resolve() / place.name
        if ".." not in path.parts and resolved.is_relative_to(base):
            return resolved
    raise AddressRefused(f"{_quoted(str(path))} is not in the folder set for SQLite stores, or has .. in it")


def _refuse_strange_files(place: Path) -> None:
    """Raise `AddressRefused` for links, which may change between check and use, and for special files."""
    for name in (str(place), *(f"{place}-{kind}" for kind in ("wal", "shm", "journal"))):
        try:
            mode = os.lstat(name).st_mode
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(mode):
            kind = "a symbolic link" if stat.S_ISLNK(mode) else "a folder" if stat.S_ISDIR(mode) else "not a file"
            raise AddressRefused(f"{_quoted(name)} is {kind}; a store and the files beside it are plain files")
