"""Files of SQLite stores: below the root (S4), plain, on a disk of this machine, and left as they were by readers."""

from __future__ import annotations

import os
import socket
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from airflow_mq import MessageQueue
from airflow_mq.engine.rules.errors import AddressRefused, NetworkFileSystem, SchemaMissing, StoreMissing
from airflow_mq.engine.store import upgrade
from airflow_mq.engine.store.address import parse, refuse_network_file_system, sqlite_address


def refused(uri: str, root: Path | None = None) -> str:
    with pytest.raises(AddressRefused) as caught:
        parse(uri, root=root)
    return str(caught.value)


# -- S4: SQLite files stay below the root --


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root" / "inner").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "root-beside").mkdir()
    return tmp_path / "root"


def test_a_relative_address_starts_at_the_root(root: Path) -> None:
    assert parse("sqlite:///store.db", root=root).path == root.resolve() / "store.db"
    assert parse("sqlite:///inner/store.db", root=root).path == root.resolve() / "inner" / "store.db"
    assert parse(f"sqlite:///{root}/inner/store.db", root=root).path == root.resolve() / "inner" / "store.db"


@pytest.mark.parametrize(
    "path",
    [
        "../outside/store.db",
        "..%2Foutside%2Fstore.db",
        "%2e%2e/outside/store.db",
        "inner/../../outside/store.db",
        "inner/../store.db",
        "{root}/../outside/store.db",
        "{root}-beside/store.db",
        "{outside}/store.db",
        "/etc/passwd",
        "/proc/self/environ",
        "missing/../../outside/store.db",
    ],
)
def test_an_address_outside_of_the_root_is_refused(root: Path, path: str) -> None:
    uri = "sqlite:///" + path.format(root=root, outside=root.parent / "outside")

    assert "not in the folder set for SQLite stores" in refused(uri, root)


def test_links_do_not_lead_out_of_the_root(root: Path) -> None:
    (root / "folder").symlink_to(root.parent / "outside")
    (root / "further").symlink_to(root / "folder")
    (root / "dangling").symlink_to(root.parent / "not-yet")

    for folder in ("folder", "further", "dangling"):
        assert "not in the folder" in refused(f"sqlite:///{folder}/store.db", root)


def test_links_within_the_root_are_resolved(root: Path) -> None:
    (root / "folder").symlink_to(root / "inner")

    assert parse("sqlite:///folder/store.db", root=root).path == root.resolve() / "inner" / "store.db"


def test_links_to_the_root_itself_are_resolved(root: Path) -> None:
    (root.parent / "alias").symlink_to(root)
    alias = root.parent / "alias"

    assert parse(f"sqlite:///{alias}/store.db", root=alias).path == root.resolve() / "store.db"


@pytest.mark.parametrize("name", ["store.db", "store.db-wal", "store.db-shm", "store.db-journal"])
def test_a_linked_file_is_refused(root: Path, name: str) -> None:
    (root / name).symlink_to(root.parent / "outside" / "elsewhere.db")

    assert "is a symbolic link" in refused("sqlite:///store.db", root)
    assert "is a symbolic link" in refused(f"sqlite:///{root}/store.db")


def test_links_in_a_circle_are_refused(root: Path) -> None:
    (root / "one").symlink_to(root / "two")
    (root / "two").symlink_to(root / "one")

    refused("sqlite:///one/store.db", root)
    refused(f"sqlite:///{root}/one/store.db")


def test_what_only_looks_like_a_file_is_refused(root: Path) -> None:
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(root / "socket"))

    assert "not a file" in refused("sqlite:///pipe", root)
    assert "not a file" in refused("sqlite:///socket", root)
    assert "is a folder" in refused("sqlite:///inner", root)
    assert "not a file" in refused("sqlite:////dev/null")
    assert "cannot be looked at" in refused("sqlite:////etc/passwd/store.db")


@pytest.mark.parametrize("wrong", ["relative", "missing", "file"])
def test_a_root_that_is_no_folder_refuses_everything(root: Path, wrong: str) -> None:
    (root / "file").touch()
    folder = Path("relative") if wrong == "relative" else root / wrong

    assert "not an absolute path of a folder" in refused("sqlite:///store.db", folder)


def test_a_plain_path_is_not_decoded(root: Path) -> None:
    assert sqlite_address("%2e%2e", root=root).path == root.resolve() / "%2e%2e"
    with pytest.raises(AddressRefused):
        sqlite_address("../outside/store.db", root=root)


def test_nothing_is_created_by_reading_an_address(root: Path) -> None:
    before = sorted(root.rglob("*"))

    parse("sqlite:///new/store.db", root=root)

    assert sorted(root.rglob("*")) == before


# -- how SQLite opens it --


@pytest.mark.parametrize(
    "name", ["store.db", "two words.db", "100%41.db", "a&b=c.db", "sch\N{LATIN SMALL LETTER O}n.db"]
)
def test_the_file_uri_opens_this_file_and_no_other(tmp_path: Path, name: str) -> None:
    address = sqlite_address(str(tmp_path / name))

    with pytest.raises(sqlite3.OperationalError):
        sqlite3.connect(address.file_uri("ro"), uri=True).execute("SELECT 1 FROM sqlite_master")
    assert list(tmp_path.iterdir()) == []
    with closing(sqlite3.connect(address.file_uri("rwc"), uri=True)) as connection:
        connection.execute("CREATE TABLE t (x)")

    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_reading_leaves_no_files_beside_the_store(tmp_path: Path) -> None:
    address = sqlite_address(str(tmp_path / "store.db"))
    writer = sqlite3.connect(address.file_uri("rwc"), uri=True)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("CREATE TABLE t (x)")

    reader = sqlite3.connect(address.file_uri("ro"), uri=True)
    assert reader.execute("SELECT count(*) FROM t").fetchone() == (0,)  # seen in the -wal of the open writer
    reader.close()
    writer.close()
    reader = sqlite3.connect(address.file_uri("ro"), uri=True)
    assert reader.execute("SELECT count(*) FROM t").fetchone() == (0,)
    with pytest.raises(sqlite3.OperationalError):
        reader.execute("CREATE TABLE u (x)")
    reader.close()

    assert [path.name for path in tmp_path.iterdir()] == ["store.db"]


# -- network file systems --

MOUNTINFO = r"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /net/home rw shared:7 master:2 - nfs4 server:/home rw,vers=4.2
31 30 8:2 / /net/home/scratch rw - xfs /dev/sdb1 rw
32 22 0:41 / /mnt/two\040words rw - fuse.sshfs me@host: rw
33 22 0:42 / /mnt/covered rw - cifs //host/share rw
34 33 8:3 / /mnt/covered rw - ext4 /dev/sdc1 rw
35 22 0:43 / /mnt/shared rw - 9p share rw,trans=virtio
36 22 0:44 / /mnt/ntfs rw - fuseblk /dev/sdd1 rw
a line that means nothing
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/store.db", None),
        ("/net/store.db", None),
        ("/net/home/store.db", "nfs4"),
        ("/net/home/deep/er/store.db", "nfs4"),
        ("/net/homes/store.db", None),
        ("/net/home/scratch/store.db", None),
        ("/mnt/two words/store.db", "fuse.sshfs"),
        ("/mnt/covered/store.db", None),
        ("/mnt/shared/store.db", "9p"),
        ("/mnt/ntfs/store.db", None),
    ],
)
def test_a_network_file_system_is_refused(tmp_path: Path, path: str, kind: str | None) -> None:
    (tmp_path / "mountinfo").write_text(MOUNTINFO)
    if kind is None:
        refuse_network_file_system(Path(path), mounts=tmp_path / "mountinfo")
        return
    with pytest.raises(NetworkFileSystem, match=rf"network file system \({kind}\)"):
        refuse_network_file_system(Path(path), mounts=tmp_path / "mountinfo")


def test_a_link_to_a_network_file_system_is_followed(tmp_path: Path) -> None:
    (tmp_path / "mountinfo").write_text(MOUNTINFO)
    (tmp_path / "link").symlink_to("/net/home")
    with pytest.raises(NetworkFileSystem):
        refuse_network_file_system(tmp_path / "link" / "store.db", mounts=tmp_path / "mountinfo")


def test_without_a_table_of_mounts_nothing_is_refused(tmp_path: Path) -> None:
    refuse_network_file_system(tmp_path / "store.db", mounts=tmp_path / "missing")
    (tmp_path / "empty").touch()
    refuse_network_file_system(tmp_path / "store.db", mounts=tmp_path / "empty")
    (tmp_path / "sandbox").write_text("1 0 0:1 / / rw - 9p none rw\n")
    refuse_network_file_system(tmp_path / "store.db", mounts=tmp_path / "sandbox")
    refuse_network_file_system(tmp_path / "store.db")


# -- files that are gone --


def test_a_store_whose_file_is_gone_is_not_one_without_tables(tmp_path: Path) -> None:
    path = tmp_path / "kept" / "store.db"
    with pytest.raises(StoreMissing, match=f"there is no directory {path.parent}; .*store upgrade"):
        MessageQueue(f"sqlite:///{path}")
    assert not path.parent.exists()
    upgrade(parse(f"sqlite:///{path}"))
    with MessageQueue(f"sqlite:///{path}") as queue:
        path.rename(path.with_name("away"))
        with ThreadPoolExecutor() as pool, pytest.raises(StoreMissing, match=f"there is no file {path}; "):
            pool.submit(queue.enqueue_message, "acme", b"x").result()
        path.touch()
        with pytest.raises(SchemaMissing) as caught:
            MessageQueue(f"sqlite:///{path}")
    assert not isinstance(caught.value, StoreMissing)
