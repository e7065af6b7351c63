"""Help, versions, exit codes, errors in one line, and no password anywhere."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_mq import __version__
from airflow_mq.cli import main
from airflow_mq.cli.command import Command, Entry, Group
from airflow_mq.cli.parser import TREE
from airflow_mq.cli.program import run
from tests.store.cli.conftest import Terminal

CANARY = "s3cret-Canary"


def paths(entries: tuple[Entry, ...] | list[Entry], before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for entry in entries:
        yield (*before, entry.name)
        if isinstance(entry, Group):
            yield from paths(list(entry.commands), (*before, entry.name))


@pytest.mark.parametrize("path", [(), *paths(TREE)], ids=" ".join)
def test_every_command_has_help(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*path, "--help"]) == 0

    text = capsys.readouterr().out
    assert text.startswith(f"usage: airflow-mq {' '.join(path)}".rstrip())
    assert "airflow-mq " in text.partition("example:" if path else "A first look:")[2]
    if not path:
        assert "exit codes:" in text and "130" in text


@pytest.mark.parametrize("path", [(), *paths(TREE)], ids=" ".join)
def test_every_example_can_be_read(path: tuple[str, ...]) -> None:
    from airflow_mq.cli.parser import parse_line

    entry: Entry | None = None
    for name in path:
        entry = next(one for one in (entry.commands if isinstance(entry, Group) else TREE) if one.name == name)
    if isinstance(entry, Command):
        for line in entry.example.splitlines():
            words = shlex.split(line.removeprefix("$ ").partition(" || ")[0].partition(" > ")[0])
            assert parse_line(words).command is entry


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"airflow-mq {__version__}\n"
    assert main(["--version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"version": __version__}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["store"], 2),
        (["nothing"], 2),
        (["queue", "list", "--colour"], 2),
        (["queue", "list"], 2),
        (["queue", "list", "--store", "mysql://host/database"], 4),
        (["queue", "list", "--store", "sqlite:///x.db", "--conn-id", "y"], 2),
        (["queue", "list", "--store", "sqlite:///no/such/file.db"], 4),
    ],
)
def test_errors_are_one_line_and_a_code(
    words: list[str], code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW_MQ_STORE", raising=False)

    assert main(words) == code
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1

    assert main([*words, "--json"]) == code
    out, err = capsys.readouterr()
    told = json.loads(err)
    assert out == "" and told["exit_code"] == code and told["message"] and told["error"]


def test_without_words_the_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert out.startswith("usage: airflow-mq") and "A first look:" in out and err == ""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["enqueu", "acme", "x"], "there is no command 'enqueu'; did you mean enqueue?"),
        (["queue", "xyzzy"], "there is no command 'xyzzy'; expected one of list, show, set, "),
        (["set-aside", "lst"], "there is no command 'lst'; did you mean list?"),
        (["xyzzy"], "there is no command 'xyzzy'; expected one of status, enqueue, service, "),
        (["--store", "queue.db", "queue", "list"], "a store is at sqlite:///"),
        (["--store", "sqlite:///x.db", "message", "events", "--limit", "-1"], "a whole number, 0 or more"),
        (
            ["--store", "sqlite:///x.db", "payload", "get", "xyz"],
            "invalid id, hash or seed 'xyz': expected hexadecimal digits",
        ),
    ],
)
def test_an_error_names_what_is_expected(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words)
    assert told in capsys.readouterr().err


def test_help_is_folded_and_its_examples_are_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    main(["block", "dry-run", "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert "  airflow-mq block dry-run --share acme=3 --set order=deficit --service-weight 1m/1MB" in lines
    assert max(len(line) for line in lines if not line.startswith("  airflow-mq ")) <= 80


@pytest.mark.postgres
def test_why_a_server_is_not_reached(pg_uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In words of ours, without the driver's."""
    user, _, rest = pg_uri.removeprefix("postgresql://").partition(":")
    place = rest.partition("@")[2]
    server, _, database = place.partition("/")
    where = f"{user}:{CANARY}"
    wrong = {
        f"{where}@{place}": "the server refused the user or the password; correct login and password",
        f"{user}@{place}": "the server wants a password and none was given; add it to address or connection",
        f"{user}:{rest.partition('@')[0]}@{server}/nowhere":
            "the server has no database of this name; correct the name, or create the database",
        f"{where}@127.0.0.1:1/{database}":
            "nothing listens at this host and port; correct host and port, or start the server",
        f"{where}@nowhere.invalid/{database}":
            "no host of this name was found; correct the host, or the name server's entry",
    }  # fmt: skip
    for address, told in wrong.items():
        assert main(["--store", f"postgresql://{address}", "queue", "list"]) == 4
        err = capsys.readouterr().err
        assert f"cannot be reached: {told} (postgresql://" in err and CANARY not in err


def test_what_is_common_may_stand_anywhere(mq: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_MQ_STORE")
    mq("--store", mq.uri, "ring", "create", "night")
    mq("--ring", "night", "enqueue", "--store", mq.uri, "acme", "x")

    assert mq("--json", "--store", mq.uri, "queue", "list", "--ring", "night").json[0]["messages"] == 1
    assert mq("queue", "list", "--json", "--store", mq.uri).json == []


@pytest.mark.parametrize(
    "uri",
    [
        f"postgresql://user:{CANARY}@127.0.0.1:1/database",
        f"postgresql://user:{CANARY}@no.such.host.invalid/database?connect_timeout=1",
        f"postgresql://user:{CANARY}@127.0.0.1:1/database?options={CANARY}",
        f"postgresql://user:{CANARY}@@x:y/",
        f"mysql://user:{CANARY}@host/database",
        f"sqlite://user:{CANARY}@host",
    ],
)
@pytest.mark.parametrize(
    "words", [["queue", "list"], ["doctor"], ["store", "version"], ["store", "upgrade"], ["check"]]
)
def test_a_password_is_never_shown(
    uri: str, words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for line in (["--store", uri, *words], [*words, f"--store={uri}", "--json"]):
        assert main(line) == 4
        assert CANARY not in "".join(capsys.readouterr())
    monkeypatch.setenv("AIRFLOW_MQ_STORE", uri)
    assert main(words) == 4
    assert CANARY not in "".join(capsys.readouterr())


def test_a_password_in_the_wrong_place_is_not_repeated(mq: Terminal) -> None:
    address = f"postgresql://user:{CANARY}@host/database"
    for words in (
        [address],
        ["queue", "list", "x", address],
        ["queue", "list", f"--stroe={address}"],
        ["ring", "show", address],
        ["service", "--processor", address],
        ["enqueue", "acme", "x", "--file", address],
        ["block", "show", address],
        ["message", "events", "--name", address],
        ["enqueue", "acme", "x", "--delay", address],
    ):
        said = mq(*words, code=3 if words[:2] in (["ring", "show"], ["block", "show"]) else 2)
        assert CANARY not in said.out + said.err


@pytest.mark.usefixtures("careful_server")
def test_the_password_of_a_store_that_works_is_not_shown(mq: Terminal) -> None:
    # SQLite has none; its whole address may be shown.
    password = mq.uri.partition("@")[0].rpartition(":")[2] if "@" in mq.uri else CANARY
    for words in (["store", "version"], ["doctor"], ["store", "upgrade"], ["ring", "show"]):
        for more in ([], ["--json"]):
            said = mq(*words, *more)
            assert password not in said.out + said.err


def test_a_mistake_of_ours_is_one_line_too(mq: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_mq import MessageQueue

    uri = f"postgresql://user:{CANARY}@127.0.0.1:1/database"

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError(f"oh, {CANARY} and {uri}")

    monkeypatch.setattr(MessageQueue, "footprint", broken)
    monkeypatch.setattr(sys, "argv", ["airflow-mq", "--store", uri])
    said = mq("queue", "show", "acme", code=70)

    assert "RuntimeError: oh, ***" in said.err and CANARY not in said.err


def test_invalid_text_is_an_error(mq: Terminal) -> None:
    broken = "\udcff"  # how a shell's stray byte arrives
    for words in (
        ["queue", "pause", "acme", "--why", broken],
        ["queue", "pause", broken],
        ["queue", "list", "--prefix", broken],
        ["set-aside", "list", "--origin", broken],
        ["set-aside", "discard", f"{broken}:0:0", "--why", "x"],
        ["message", "events", "--origin", broken],
        ["--ring", broken, "queue", "list"],
        ["ring", "create", broken],
        ["enqueue", "acme", "x", "--header", f"a={broken}"],
        ["enqueue", "acme", "x", "--key", broken],
        ["admin", "fit-weigher", "--processor", broken],
    ):
        assert mq(*words, code=2).err.startswith("error: ")


def test_words_may_follow_options(mq: Terminal) -> None:
    assert mq("--json", "enqueue", "acme", "--delay", "0", "one", "two").json["count"] == 2
    assert "unknown: --three" in mq("enqueue", "acme", "one", "--three", code=2).err
    assert "ORIGIN:PAGE:INDEX" in mq("set-aside", "discard", "a:0:0", "--why", "x", "b", code=2).err
    assert "unknown: more" in mq("admin", "set-aside-queue", "acme", "more", code=2).err
    assert "expected seconds from 0 to 1e9" in mq("queue", "pause", "acme", "--until", "999999d", code=2).err


@pytest.mark.slow
def test_it_is_a_program(mq: Terminal, tmp_path: Path) -> None:
    for program in ([sys.executable, "-m", "airflow_mq"], [str(Path(sys.executable).parent / "airflow-mq")]):
        done = subprocess.run([*program, "queue", "list", "--json"], capture_output=True, text=True, cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")
        assert subprocess.run([*program, "message", "history"], capture_output=True).returncode == 2


def test_errors_have_a_text_without_docstrings(sqlite_uri: str) -> None:
    line = [sys.executable, "-OO", "-m", "airflow_mq", "--store", sqlite_uri, "block", "show", "00ff"]
    done = subprocess.run(line, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (3, "error: UnknownBlock\n")


def test_declaring_commands_loads_no_driver_and_no_airflow() -> None:
    code = (
        "import sys; import airflow_mq.cli.parser; "
        "print(*[name for name in ('psycopg', 'sqlite3', 'rich', 'airflow') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == []


@pytest.mark.parametrize(("redirection", "code"), [(">&-", 0), (">/dev/full", 70)])
def test_an_output_that_is_closed_or_full_is_no_defect(redirection: str, code: int, mq: Terminal) -> None:
    command = f'exec "$0" -m airflow_mq ring list --json {redirection}'
    done = subprocess.run(["sh", "-c", command, sys.executable], capture_output=True, text=True, check=False)
    assert done.returncode == code and ("No space left on device" in done.stderr) is bool(code)
    assert "report it" not in done.stderr and "Traceback" not in done.stderr


def test_only_a_lost_reader_of_the_output_ends_a_command_with_success(
    mq: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    read, write = os.pipe()
    os.close(read)
    line = [sys.executable, "-m", "airflow_mq", "ring", "list"]
    done = subprocess.run(line, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")

    def broken(*_: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    assert run(Namespace(run=broken)) == 70
    assert "BrokenPipeError" in capsys.readouterr().err


def test_a_ring_of_delayed_messages_is_not_called_empty(mq: Terminal) -> None:
    mq("enqueue", "late", "1", "--delay", "1d")
    for command in ("queue list", "queue list --sort oldest", "block dry-run", "status", "top --once"):
        text = mq(*command.split()).out
        assert "nothing waits here; the first delayed message joins its queue at 20" in text, command
        assert "send a message" not in text


def test_a_wrong_command_line_is_one_without_standard_error(mq: Terminal) -> None:
    command = 'exec "$0" -m airflow_mq no-such-command 2>&-'
    assert subprocess.run(["sh", "-c", command, sys.executable], check=False).returncode == 2


def test_commands_that_answers_suggest_quote_the_names_of_senders(mq: Terminal) -> None:
    origin = "x; echo 'it is $(id)'"
    quoted = shlex.quote(origin)
    mq("enqueue", origin, "1")
    mq("enqueue", "y", "2")
    assert f"airflow-mq queue resume {quoted}" in mq("queue", "pause", origin).out
    assert f"airflow-mq explain {quoted}" in mq("queue", "show", origin).out
    assert f"--after={quoted}" in mq("queue", "list", "--sort", "name", "--limit", "1").out
    assert f"airflow-mq enqueue {shlex.quote('; id')} " in mq("message", "list", "; id").out
    mq("queue", "resume", origin)
    assert f"`airflow-mq set-aside list --origin={quoted}`" in mq("admin", "set-aside-queue", origin).out
    mq("admin", "set-aside-queue", "y")
    assert f"--after={shlex.quote(f'{origin}:0:0')}" in mq("set-aside", "list", "--limit", "1").out


def test_commands_that_answers_suggest_work_with_names_that_begin_with_a_dash(mq: Terminal) -> None:
    mq("enqueue", "--", "-rf", "1")
    assert "1 message, 1 byte, 1 page" in mq("queue", "show", "--", "-rf").out
    mq("enqueue", "--", "-rf", "2")
    answers = [mq(*words, "--", "-rf").out for words in (["queue", "pause"], ["explain"], ["queue", "show"])]
    answers += [mq("admin", "set-aside-queue", "--", "-rf").out, mq("explain", "--", "-rf:0:1").out]
    lines = [line for line in "".join(answers).splitlines() if "airflow-mq " in line]
    commands = {line.rpartition("airflow-mq ")[2].rstrip("`") for line in lines}
    assert {one for one in commands if one.endswith("-rf")} == {
        "queue resume -- -rf",
        "explain -- -rf",
        "set-aside list --origin=-rf",
    }
    for command in commands:
        if command.endswith("-rf"):
            mq(*shlex.split(command))
    assert "continue with --after=-rf:0:0" in mq("set-aside", "list", "--limit", "1").out


def test_an_address_beyond_every_page_is_a_wrong_argument(mq: Terminal) -> None:
    assert "invalid address" in mq("explain", f"acme:{10**20}:0", code=2).err
