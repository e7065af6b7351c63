"""Readers of names: addresses of stores, connections, tokens, and paths of landing files."""

from __future__ import annotations

import io
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from airflow_mq.adapters.landing.lines import Reading, read_lines
from airflow_mq.adapters.landing.names import LONGEST_NAME, bytes_of, is_left_alone, shortened, text_of
from airflow_mq.adapters.landing.place import Found
from airflow_mq.adapters.landing.source import origin_pattern
from airflow_mq.connections import Target as Store
from airflow_mq.connections import target_of
from airflow_mq.engine.queue.tokens import ReferenceToken, read_tokens
from airflow_mq.engine.rules.errors import AddressRefused, InvalidInput
from airflow_mq.engine.rules.message import MOST_KEY_BYTES, Address
from airflow_mq.engine.store.address import StoreAddress, parse
from airflow_mq.keys import block_key, key_for, run_of
from airflow_mq.provider import FIELDS

from ..draw import Draw
from ..target import Target, attempt

#: A folder that exists nowhere: no test opens a store.
ROOT = Path("/nowhere/stores")
#: A password that no error may repeat.
SECRET = "hunter2-canary"


def check_store_address(data: bytes) -> None:
    """Parse the address of a store; its URI parses to the same address, and `safe` has no password."""
    text = data.decode("utf-8", "surrogateescape").replace("SECRET", SECRET)
    root = ROOT if "?" not in text and "nowhere" in text else None
    try:
        address = attempt(lambda: parse(text, root=root), AddressRefused)
    except Exception as error:
        may_be_password = "@" in text or text.count("://") > 1
        assert not may_be_password or SECRET not in str(error), "an error repeats the password"
        raise
    _check_address(address, root)


def _check_address(address: StoreAddress, root: Path | None) -> None:
    assert parse(address.uri, root=root) == address
    assert address.driver == "postgresql" or (address.path is not None and address.path.is_absolute())
    shown = f"{address} {address.safe!r} {address!r}"
    assert not address.password or SECRET not in address.password or _elsewhere(address) or SECRET not in shown
    if address.driver == "postgresql":
        settings = address.conninfo()
        assert settings["host"] and "/" not in str(settings["host"]) and "," not in str(settings["host"])
        assert settings["passfile"] != "" and settings["options"] == ""


def _elsewhere(address: StoreAddress) -> bool:
    """Return whether the password is also written where it is no secret."""
    return any(SECRET in str(part) for part in (address.host, address.user, address.database, address.origins))


def check_connection(data: bytes) -> None:
    """Read an Airflow connection: its fields, and its extra as JSON."""
    draw = Draw(data)
    fields: dict[str, Any] = {name: draw.text() or None for name in ("host", "login", "schema")}
    fields["port"] = draw.pick((None, 5432, draw.whole(3), -1))
    fields["password"] = draw.pick((None, SECRET, draw.text()))
    rest = draw.rest()
    fields["extra"] = rest.decode("utf-8", "surrogateescape").replace("SECRET", SECRET)
    try:
        found = attempt(lambda: target_of(SimpleNamespace(**fields)), AddressRefused)  # type: ignore[arg-type]
    except Exception as error:
        assert SECRET not in str(error), "an error repeats the password"
        raise
    assert isinstance(found, Store) and isinstance(found.ring, str)
    _check_address(found.address, None)


def check_token(data: bytes) -> None:
    """Read the token of a leased message, or an address; the text of it reads to the same."""
    text = data.decode("utf-8", "surrogateescape")
    if "/" not in text:
        address = attempt(lambda: Address.parse(text), InvalidInput)
        assert Address.parse(str(address)) == address and address.origin
        return
    token = attempt(lambda: ReferenceToken.parse(text), InvalidInput)
    assert ReferenceToken.parse(str(token)) == token
    assert token.secret not in repr(token) or token.secret in f"{token.ring} {token.address}"
    (found,) = attempt(lambda: read_tokens(SimpleNamespace(ring="default"), [text]), InvalidInput)
    assert found == token


def check_landing(data: bytes) -> None:
    """Take an origin from the path of a file, and make the names of its key, receipt and note."""
    draw = Draw(data)
    pattern, regex, raw = draw.pick(_PATTERNS) or draw.text(), draw.byte() % 16 == 0, draw.rest()
    path = os.fsdecode(raw[:1_024].replace(b"\0", b"/"))
    if regex:
        found = attempt(lambda: origin_pattern(None, pattern), InvalidInput)
    else:
        found = attempt(lambda: origin_pattern(pattern, None), InvalidInput)
    # A regular expression is the author's, and may be slow; a pattern is slow for no path.
    matched = None if regex else found.fullmatch(path)
    assert matched is None or matched["origin"]
    text_of(path).encode("utf-8")
    name = path.rpartition("/")[2]
    assert isinstance(is_left_alone(name), bool)
    key = key_for("landing", "place", f"{path}@1")
    assert len(key.encode("utf-8")) <= MOST_KEY_BYTES and key.isprintable()
    for suffix in ("", ".0123456789ab", ".0123456789ab.why"):
        short = shortened(name, suffix, LONGEST_NAME)
        assert bytes_of(short) <= LONGEST_NAME and "/" not in short
        assert shortened(short, "", LONGEST_NAME) == short


_PATTERNS = ("", "{origin}/*.json", "{origin*}/**", "{origin}/*_*_*.csv", "in/{origin*}.?", "**/{origin}/**/*.*")


def check_lines(data: bytes) -> None:
    """Read a file by lines; lines and their endings make up the file."""
    reading = Reading(Found("acme/a", len(data), "1"), "acme")
    lines = list(read_lines(io.BytesIO(data), reading))
    assert reading.offset == len(data) and reading.number == len(lines) == len(io.BytesIO(data).readlines())
    for line in lines:
        assert line.unfit is None and line.data == data[line.start : line.start + line.length]
        assert not line.data.endswith(b"\n")
        assert data[line.start + line.length :][:2] == b"\r\n" or data[line.start + line.length :][:1] in (b"\n", b"")


def check_block_key(data: bytes) -> None:
    """Make the keys of a run's blocks and messages, and find the run of a block's key."""
    draw = Draw(data)
    dag_id, run_id, task_id = draw.text(), draw.text(), draw.text()
    map_index = draw.pick((-1, 0, 7))
    key = block_key("here", dag_id, run_id, task_id, map_index)
    assert len(key.encode("utf-8", "surrogateescape")) <= MOST_KEY_BYTES
    is_plain = all(part and "/" not in part for part in (dag_id, task_id)) and run_id
    if is_plain and not key.startswith("sha256:"):
        assert run_of(key, "here") == (dag_id, run_id)
        assert run_of(key, "there") is None
    run_of(draw.text(), "here")
    name = key_for(f"here:{dag_id}", run_id, task_id, str(map_index), draw.text())
    assert len(name.encode("utf-8")) <= MOST_KEY_BYTES and name.isprintable()


POSTGRES = b"postgresql://user:SECRET@db.example.org:5433/airflow?"
TARGETS = (
    Target(
        "address", ("airflow_mq.engine.store.address", "airflow_mq.engine.store.files", "airflow_mq.engine.rules.patterns"),
        "AddressRefused, without the password", "the URI of an address parses to the same address", check_store_address,
        (
            b"sqlite:///folder/store.db", b"sqlite:////nowhere/a%20b.db?origins=acme%7Cacme/*&priority=regular",
            b"sqlite:///:memory:", b"sqlite:////nowhere/stores/../x.db", POSTGRES + b"schema=mq&sslmode=verify-full",
            b"postgres://user@[::1]/db?connect_timeout=5&keepalives_count=3&origins=acme",
            POSTGRES + b"password=SECRET&host=/tmp", b"postgresql://u:a@SECRET@h/d", b"postgresql://u:%53ECRET%@h/d%3D",
        ),
    ),
    Target(
        "connection", ("airflow_mq.connections", "airflow_mq.engine.store.address", "airflow_mq.engine.store.files"),
        "AddressRefused, without the password", "the URI of its address parses to the same address", check_connection,
        (
            b'\2db\4user\4base\0\1{"sslmode":"require","connect_timeout":5,"ring":"full","origins":"acme"}',
            b'\0\0\0\0\0{"path":"/nowhere/store.db","driver":"sqlite","priority":"regular"}',
            b'\2db\4user\4base\2\2\x15\x38\1{"password":"SECRET"}', b"\2db\4user\4base\0\1[1]",
            *(b'\2db\1u\1d\0\1{"%s":"7"}' % name.encode() for name in FIELDS),
        ),
    ),
    Target(
        "token", ("airflow_mq.engine.queue.tokens", "airflow_mq.engine.rules.message"), "InvalidInput",
        "the text of a token or an address reads to the same", check_token,
        (
            b"default/0123456789abcdef0123456789abcdef/acme%2Feu:3:14", b"acme:3:14:high", b"acme:0:9223372036854775807",
            b"default/0123456789abcdef0123456789abcdef/a%20b%C3%A4:0:1:high", b"other/00000000000000000000000000000000/x:1:1",
        ),
    ),
    Target(
        "landing",
        ("airflow_mq.adapters", "airflow_mq.adapters.landing.names", "airflow_mq.adapters.landing.source"),
        "InvalidInput", "names stay within their limits; no path makes a pattern slow", check_landing,
        (
            b"\1\0acme/order.json", b"\2\0acme/eu/orders/1.json", b"\3\0acme/a_b_c.csv", b"\0\x0b{origin}/*.?\0acme/a.b",
            b"\0\x12(?P<origin>[a-z]+)\x10\0acme", b"\5\0a/b/c/\xff\xfe.tmp", b"\1\0acme/" + b"\xc3\xa4" * 140 + b".json",
        ),
    ),
    Target(
        "lines", ("airflow_mq.adapters.landing.lines",), "none", "the lines and their endings make up the file",
        check_lines, (b"a\nb\r\n\r\nc", b"\n", b"a\r", b""),
    ),
    Target(
        "block-key", ("airflow_mq.keys",), "none", "a block's key names its run; keys stay within their limits",
        check_block_key, (b"\6orders\x13scheduled__2026-01-0\4plan\1", b"\1d\3a/b\1t\2\0", b"\0\0\0\0"),
    ),
)  # fmt: skip
