"""Addresses: parsing, refusals (S3), and no password in any refusal (S5)."""

from __future__ import annotations

import pickle
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_attempts

from airflow_mq import MessageQueue
from airflow_mq.engine.rules.errors import AddressRefused, StoreUnreachable
from airflow_mq.engine.store.address import NUMBERS, SSL_MODES, StoreAddress, parse
from airflow_mq.engine.store.pipelined import within
from airflow_mq.engine.store.postgres import connect
from airflow_mq.engine.store.postgres_errors import NO_PRIMARY
from airflow_mq.provider import SSL_MODES as SSL_MODES_OF_THE_FORM
from airflow_mq.testing.loopback import free_port

CANARY = "hunter2canary"


def refused(uri: str) -> str:
    with pytest.raises(AddressRefused) as caught:
        parse(uri)
    assert caught.value.__cause__ is None
    return str(caught.value)


# -- what is read --


def test_a_sqlite_address_is_absolute_once_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert parse("sqlite:///store.db").path == tmp_path.resolve() / "store.db"
    assert parse("sqlite:///a/./b.db").path == tmp_path.resolve() / "a" / "b.db"
    assert parse(f"sqlite:///{tmp_path}/store.db").path == tmp_path.resolve() / "store.db"
    assert parse("sqlite:///two%20words%25.db").path == tmp_path.resolve() / "two words%.db"
    assert parse("sqlite:///schöne post.db").path == tmp_path.resolve() / "schöne post.db"


def test_a_postgres_address_has_parts_and_defaults() -> None:
    address = parse("postgres://us%40er:p%2Fw%3A%20@db.example.com/da%20ta")

    assert (address.driver, address.host, address.port) == ("postgresql", "db.example.com", 5432)
    assert (address.user, address.password, address.database) == ("us@er", "p/w: ", "da ta")
    assert (address.schema, address.sslmode, address.connect_timeout) == ("airflow_mq", None, 10)


def test_a_postgres_address_takes_three_parameters() -> None:
    address = parse("postgresql://u@[::1]:6432/d?connect_timeout=3&schema=_mq2&sslmode=verify-full")

    assert (address.host, address.port, address.password) == ("::1", 6432, None)
    assert (address.schema, address.sslmode, address.connect_timeout) == ("_mq2", "verify-full", 3)


@pytest.mark.parametrize(
    "uri",
    [
        "sqlite:////tmp/two%20words%25%23.db".replace("%23", ""),
        "sqlite:////tmp/sch%C3%B6n.db",
        "postgresql://u:p%40%3A%2F%3F%23%25%20%C3%BC@h:1/d%2Fb?schema=s&sslmode=require&connect_timeout=60",
        "postgresql://u:a+b&c=d;e@h.example.:65535/d",
        "postgresql://u@[2001:db8::1]:5432/d",
        "postgresql://u:two:colons@airflow_db-1/d",
    ],
)
def test_what_is_written_reads_back_the_same(uri: str) -> None:
    address = parse(uri)

    assert parse(address.uri) == address
    assert parse(address.safe).password is None


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1))
def test_any_password_is_carried_and_never_shown(password: str) -> None:
    marked = f"{CANARY}{password}"
    address = StoreAddress("postgresql", host="h", user="u", password=marked, database="d")

    assert parse(address.uri).password == marked == address.conninfo()["password"]
    assert CANARY not in f"{address} {address!r} {address.safe} {[address]}"
    assert pickle.loads(pickle.dumps(address)) == address  # noqa: S301 - pickled a moment ago


def test_the_form_and_the_address_know_the_same_ssl_modes() -> None:
    assert SSL_MODES_OF_THE_FORM == SSL_MODES


# -- S3: what is refused --


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("", "does not begin with its kind is not known"),
        ("store.db", "does not begin with its kind is not known"),
        ("mysql://u:p@h/d", "starts with mysql:"),
        ("postgresql+psycopg://u:p@h/d", "starts with postgresql+psycopg:"),
        ("sqlite+aiosqlite:///store.db", "starts with sqlite+aiosqlite:"),
        ("SQLITE:///store.db", "starts with SQLITE:"),
        ("file:store.db", "starts with file:"),
        ("file:///tmp/store.db?mode=memory", "starts with file:"),
        ("sqlite:store.db", "starts with sqlite:"),
        ("sqlite:/tmp/store.db", "starts with sqlite:"),
        ("sqlite://", "never in memory"),
        ("sqlite:///", "never in memory"),
        ("sqlite:///%20", "never in memory"),
        ("sqlite://:memory:", "never in memory"),
        ("sqlite:///:memory:", "never in memory"),
        ("sqlite:///%3Amemory%3A", "never in memory"),
        ("sqlite:///file:store.db", "neither file: nor parameters"),
        ("sqlite:///file%3Astore.db%3Fmode=memory", "neither file: nor parameters"),
        ("sqlite:///FILE:store.db", "neither file: nor parameters"),
        ("sqlite:///sqlite:///store.db", "not a plain path"),
        ("sqlite://host/store.db", "three slashes"),
        ("sqlite://user:pw@host/store.db", "three slashes"),
        ("sqlite://store.db", "three slashes"),
        ("sqlite:///store.db?mode=ro", "no parameters"),
        ("sqlite:///store.db?", "no parameters"),
        ("sqlite:///store.db#x", "no parameters"),
        ("sqlite:///store.db%3Fvfs=unix-none", "neither file: nor parameters"),
        ("sqlite:///store.db%3Fload_extension=evil.so", "neither file: nor parameters"),
        ("sqlite:///store.db%00.txt", "cannot be printed"),
        ("sqlite:///store%0Adb", "cannot be printed"),
        ("sqlite:///st\nore.db", "cannot be printed"),
        ("sqlite:///st\u202eore.db", "cannot be printed"),
        ("sqlite:///st\ud800ore.db", "cannot be printed"),
        (" sqlite:///store.db", "cannot be printed, or blanks"),
        ("sqlite:///store%zz.db", "write % as %25"),
        ("sqlite:///100%", "write % as %25"),
        ("sqlite:///store%ff.db", "not UTF-8"),
        ("sqlite:///store%c0%af.db", "not UTF-8"),
        ("sqlite:///~/store.db", "which nothing expands"),
        ("sqlite://///host/share/store.db", "which nothing expands"),
        ("sqlite:////tmp/", "names a folder"),
        ("sqlite:////tmp/..", "names a folder"),
        ("sqlite:////tmp/%2e%2e", "names a folder"),
        ("sqlite:///.", "names a folder"),
        ("sqlite:////" + "x" * 5000, "cannot be looked at"),
        ("sqlite:////" + "x/" * 5000 + "store.db", "cannot be looked at"),
    ],
)
def test_other_sqlite_addresses_are_refused(uri: str, says: str) -> None:
    assert says in refused(uri)


LIBPQ_OPTIONS = """
service servicefile passfile sslkey sslcert sslrootcert sslcrl sslpassword sslkeylogfile sslcertmode options host
hostaddr port user password dbname replication requirepeer require_auth channel_binding
krbsrvname gssencmode application_name fallback_application_name client_encoding load_balance_hosts
"""


@pytest.mark.parametrize("name", LIBPQ_OPTIONS.split())
def test_other_options_of_libpq_are_refused_by_name(name: str) -> None:
    said = refused(f"postgresql://u:{CANARY}@h/d?{name}={CANARY}")

    assert f"the parameter {name} of the address is not taken" in said
    assert "schema, sslmode, connect_timeout" in said
    assert CANARY not in said


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("postgresql:///d", "no user and no host"),
        ("postgresql://h/d", "no user"),
        ("postgresql://u:p@/d", "no host"),
        ("postgresql://u:p@h", "no database"),
        ("postgresql://u:p@h/", "no database"),
        ("postgresql://:p@h/d", "no user"),
        ("postgresql:u:p@h/d", "starts with postgresql:"),
        ("postgresql:/u:p@h/d", "starts with postgresql:"),
        ("host=h dbname=d user=u password=p", "does not begin with its kind is not known"),
        ("postgresql://u:p@h1,h2/d", "ends in target_session_attrs=read-write"),
        ("postgresql://u:p@h1:1,h2:2/d", "ends in target_session_attrs=read-write"),
        ("postgresql://u:p@h1,h2/d?target_session_attrs=any", "ends in target_session_attrs=read-write"),
        ("postgresql://u:p@h/d?target_session_attrs=read-write", "and no other one does"),
        ("postgresql://u:p@h1,/d?target_session_attrs=read-write", "one name or one IP address"),
        ("postgresql://u:p@h1,h2:0/d?target_session_attrs=read-write", "1 to 65535"),
        ("postgresql://u:p@h1,h2:x/d?target_session_attrs=read-write", "not a whole number"),
        ("postgresql://u:p@h1,%2Fvar%2Frun/d?target_session_attrs=read-write", "Unix socket"),
        ("postgresql://u:p@%2Fvar%2Frun%2Fpostgresql/d", "Unix socket"),
        ("postgresql://u:p@/var/run/postgresql/d", "one host"),
        ("postgresql://u:p@-h/d", "one name or one IP address"),
        ("postgresql://u:p@h%20x/d", "one name or one IP address"),
        ("postgresql://u:p@hö/d", "one name or one IP address"),
        ("postgresql://u:p@[::1%25eth0]/d", "one name or one IP address"),
        ("postgresql://u:p@[12345::]/d", "one name or one IP address"),
        ("postgresql://u:p@[]/d", "no host"),
        ("postgresql://u:p@" + "h" * 254 + "/d", "one name or one IP address"),
        ("postgresql://u:p@h:/d", "not a whole number"),
        ("postgresql://u:p@h:0/d", "1 to 65535"),
        ("postgresql://u:p@h:65536/d", "1 to 65535"),
        ("postgresql://u:p@h:-1/d", "not a whole number"),
        ("postgresql://u:p@h:١٢/d", "not a whole number"),
        ("postgresql://u:p@h:" + "9" * 5000 + "/d", "not a whole number"),
        ("postgresql://u:p@h/d#x", "one host"),
        ("postgresql://u:p@h/d e", "one host"),
        ("postgresql://u:p@h/d/e", "one host"),
        ("postgresql://u:p@h/" + "d" * 64, "63 bytes"),
        ("postgresql://" + "ü" * 32 + ":p@h/d", "63 bytes"),
        ("postgresql://u%0A:p@h/d", "cannot be printed"),
        ("postgresql://u:p@h/d%00", "cannot be printed"),
        ("postgresql://u:p%00@h/d", "NUL"),
        ("postgresql://u:p%zz@h/d", "write % as %25"),
        ("postgresql://u:p%ff@h/d", "not UTF-8"),
        ("postgresql://u:p@h/host%3Devil%20service%3Dx", "without = and ://"),
        ("postgresql://u:p@h/postgresql%3A%2F%2Fevil", "without = and ://"),
        ("postgresql://u:p@h/d?", "a parameter"),
        ("postgresql://u:p@h/d?schema=mq&schema=mq", "given twice"),
        ("postgresql://u:p@h/d?SCHEMA=mq", "a parameter"),
        ("postgresql://u:p@h/d?%73chema=mq", "a parameter"),
        ("postgresql://u:p@h/d?schema=mq&&sslmode=require", "a parameter"),
        ("postgresql://u:p@h/d?schema=mq;options=x", "the schema"),
        ("postgresql://u:p@h/d?sslmode=off", "the sslmode"),
        ("postgresql://u:p@h/d?sslmode=", "the sslmode"),
        ("postgresql://u:p@h/d?sslmode=Require", "the sslmode"),
        ("postgresql://u:p@h/d?connect_timeout=0", "1 to 60"),
        ("postgresql://u:p@h/d?connect_timeout=61", "1 to 60"),
        ("postgresql://u:p@h/d?connect_timeout=1.5", "not a whole number"),
        ("postgresql://u:p@h/d?connect_timeout=-1", "not a whole number"),
        ("postgresql://u:p@h/d?connect_timeout=", "not a whole number"),
    ],
)
def test_other_postgres_addresses_are_refused(uri: str, says: str) -> None:
    assert says in refused(uri)


THEIRS = ("pg_catalog", "pg_toast", "information_schema")


@pytest.mark.parametrize(
    "schema",
    [
        "",
        "1a",
        "A",
        "a-b",
        "a.b",
        "a%20b",
        "a;drop",
        'a"b',
        "a%27--",
        "a,public",
        "$user",
        "ä",
        "a%0A",
        "a" * 32,
        *THEIRS,
    ],
)
def test_a_schema_is_a_plain_identifier(schema: str) -> None:
    assert "the schema of the address" in refused(f"postgresql://u:p@h/d?schema={schema}")


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://u:{}@ss@h/d",
        "postgresql://u:pa@{}@h/d",
        "postgresql://u:pa/{}@h/d",
        "postgresql://u:12/{}@h/d",
        "postgresql://u:12/3?{}@h/d",
        "postgresql://u:12/3?{}=1",
        "postgresql://u:12/3?schema={}@h/d",
        "postgresql://a@b:12/s?{}=word@h/d",
        "postgresql://a@b:12/s?{}",
        "postgresql://a@b:12/s?sslmode={}",
        "postgresql://a@b:12/s?connect_timeout={}",
        "postgresql://u:pa#{}@h/d",
        "postgresql://u:pa?{}@h/d",
        "postgresql://u:{}@h:99999/d",
        "postgresql://u:{}@h1,h2/d",
        "postgresql://u@h1,h2:{}/d",
        "postgresql://u@h/d?target_session_attrs={}",
        "postgresql://u@h1,h2/d?target_session_attrs={}",
        "postgresql://u:{}@h/d?service=x",
        "postgresql://u:{}@/d",
        "postgresql://u:{}%zz@h/d",
        "postgresql://u:{}%ff@h/d",
        "postgresql://u:{}%00@h/d",
        "postgresql://u:{} @h/d",
        "postgresql://u:\n{}@h/d",
        "postgresql://u@h:{}/d",
        "mysql://u:{}@h/d",
        "u:{}@h/d",
        "{}",
        "host=h password={} dbname=d",
        "sqlite://u:{}@h/store.db",
    ],
)
def test_a_refusal_never_repeats_what_may_be_a_password(uri: str) -> None:
    assert CANARY not in refused(uri.format(CANARY))


@given(st.text(max_size=60))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    for start in ("", "sqlite:///", "postgresql://", "postgresql://u:p@h/d?"):
        try:
            address = parse(start + text)
        except AddressRefused:
            continue
        assert parse(address.uri) == address


# -- several hosts --


def test_several_hosts_are_those_of_libpq() -> None:
    uri = "postgresql://u:p@one:5433,two,[::1]:5434/d?target_session_attrs=read-write"
    address, theirs = parse(uri), psycopg.conninfo.conninfo_to_dict(uri)
    ours = address.conninfo()

    assert address.servers == [("one", 5433), ("two", 5432), ("::1", 5434)]
    assert ours["host"] == theirs["host"]
    assert (ours["port"], theirs["port"]) == ("5433,5432,5434", "5433,,5434")
    assert ours["target_session_attrs"] == theirs["target_session_attrs"] == "read-write"
    assert address.safe == "postgresql://u@one:5433,two:5432,[::1]:5434/d?target_session_attrs=read-write"
    assert parse(address.uri) == address
    assert parse("postgresql://u@two,[::1]:5434,one:5433/d?target_session_attrs=read-write").place == address.place


def test_several_hosts_share_the_port_of_their_parts() -> None:
    address = StoreAddress("postgresql", host="one,two:5434", port=5433, user="u", database="d", schema="mq")

    assert address.servers == [("one", 5433), ("two", 5434)]
    assert address.safe == "postgresql://u@one:5433,two:5434/d?schema=mq&target_session_attrs=read-write"


@pytest.mark.parametrize("host", ["::1", "[::1]", "[::1]:5433"])
def test_an_ipv6_address_of_a_connection_may_be_in_brackets(host: str) -> None:
    address = StoreAddress("postgresql", host=host, port=5433, user="u", database="d")

    assert (address.servers, address.uri) == ([("::1", 5433)], "postgresql://u@[::1]:5433/d")


@pytest.fixture
def black_hole() -> Iterator[int]:
    """Yield the port of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.postgres
def test_the_host_that_accepts_writes_is_used(pg_uri: str, black_hole: int) -> None:
    address = parse(pg_uri)
    (host, port), unused = address.servers[0], free_port()
    several = replace(address, host=f"{host}:{unused},{host}:{black_hole},{host}:{port}", connect_timeout=1)

    with MessageQueue(parse(several.uri).uri) as queue:
        queue.enqueue_message("acme", b"an order")
        assert queue.footprint("acme").count == 1


@pytest.mark.postgres
def test_no_host_accepts_writes(pg_uri: str) -> None:
    address = parse(pg_uri)
    with psycopg.connect(pg_uri, autocommit=True) as connection:
        connection.execute(f'ALTER DATABASE "{address.database}" SET default_transaction_read_only = on')
    several = replace(address, host=f"{address.host}:{free_port()},{address.host}:{address.port}")

    with pytest.raises(StoreUnreachable) as caught, MessageQueue(several.uri) as queue:
        queue.enqueue_message("acme", b"an order")
    assert str(caught.value) == str(NO_PRIMARY)


@pytest.mark.slow
def test_several_hosts_take_no_longer_than_the_caller_waits(black_hole: int) -> None:
    hosts = ",".join(["127.0.0.1"] * 3)
    several = StoreAddress("postgresql", host=hosts, port=black_hole, user="u", database="d")
    began = time.monotonic()

    with within(6), pytest.raises(StoreUnreachable):
        connect(several)
    assert time.monotonic() - began < 12


# -- parameters of libpq --


def test_libpq_takes_nothing_from_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGPASSWORD", "PGPASSFILE", "PGSSLKEY", "PGSSLCERT", "PGOPTIONS", "PGHOST", "PGUSER", "PGDATABASE"):
        monkeypatch.setenv(name, CANARY)
    monkeypatch.setenv("PGHOSTADDR", "192.0.2.1")
    monkeypatch.setenv("PGTARGETSESSIONATTRS", "standby")
    settings = parse("postgresql://u@127.0.0.1:1/d").conninfo()

    (attempt,) = conninfo_attempts(settings)
    connection = psycopg.pq.PGconn.connect_start(psycopg.conninfo.make_conninfo(**attempt).encode())  # type: ignore[arg-type]
    used = {option.keyword.decode(): option.val for option in connection.info}
    connection.finish()

    assert not [name for name, value in used.items() if value and CANARY.encode() in value]
    assert (used["hostaddr"], used["target_session_attrs"]) == (b"127.0.0.1", b"any")


def test_what_makes_a_connection_stricter_stays_with_the_environment() -> None:
    assert "sslmode" not in parse("postgresql://u@h/d").conninfo()
    assert not {"sslrootcert", "channel_binding"} & set(parse("postgresql://u@h/d").conninfo())
    assert parse("postgresql://u@h/d?sslmode=verify-full").conninfo()["sslmode"] == "verify-full"


@pytest.mark.parametrize(("said", "left"), [
    (None, "scram-sha-256,md5,password,none"),
    ("", "scram-sha-256,md5,password,none"),
    ("scram-sha-256", "scram-sha-256"),
    ("gss, md5,scram-sha-256", "scram-sha-256,md5"),
    ("!password,!md5", "scram-sha-256,none"),
    ("!gss", "scram-sha-256,md5,password,none"),
])  # fmt: skip
def test_the_environment_can_only_narrow_the_kinds_of_login(
    monkeypatch: pytest.MonkeyPatch, said: str | None, left: str
) -> None:
    monkeypatch.delenv("PGREQUIREAUTH", raising=False)
    if said is not None:
        monkeypatch.setenv("PGREQUIREAUTH", said)
    assert parse("postgresql://u@h/d").conninfo()["require_auth"] == left


def test_an_environment_that_leaves_no_kind_of_login_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGREQUIREAUTH", "gss")
    with pytest.raises(AddressRefused, match="PGREQUIREAUTH leaves no kind of login"):
        parse("postgresql://u@h/d").conninfo()


def test_a_libpq_that_cannot_require_one_is_not_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psycopg.pq, "version", lambda: 150_000)
    assert "require_auth" not in parse("postgresql://u@h/d").conninfo()


#: What a server may ask for that an address has nothing for: a ticket (GSSAPI, SSPI), a token of OAuth.
TICKETS = {
    "GSSAPI": (7).to_bytes(4, "big"),
    "SSPI": (9).to_bytes(4, "big"),
    "OAuth": (10).to_bytes(4, "big") + b"OAUTHBEARER\0\0",
}


@pytest.mark.parametrize("kind", TICKETS)
def test_a_server_that_asks_for_a_ticket_gets_nothing(kind: str) -> None:
    said: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(30)
            while True:
                (length,) = struct.unpack(">I", connection.recv(4))
                if struct.unpack(">I", connection.recv(length - 4)[:4])[0] != 80877103:
                    break
                connection.sendall(b"N")  # no TLS here; now comes the startup packet
            connection.sendall(b"R" + struct.pack(">I", 4 + len(TICKETS[kind])) + TICKETS[kind])
            said.append(connection.recv(65_536))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, args=(listener,), daemon=True)
        server.start()
        port = listener.getsockname()[1]
        with pytest.raises(StoreUnreachable, match="asked for another kind of login than is permitted"):
            MessageQueue(f"postgresql://u:{CANARY}@127.0.0.1:{port}/d")
        server.join(30)
    assert said == [b""], "the client closes the connection without a word"


@pytest.mark.postgres
def test_a_server_is_reached_with_it(pg_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGOPTIONS", "-c search_path=elsewhere")
    monkeypatch.setenv("PGPASSWORD", "wrong")
    address = parse(pg_uri)

    with psycopg.connect(**address.conninfo()) as connection:  # type: ignore[arg-type]
        found = connection.execute("SELECT current_database(), current_user, current_setting('search_path')").fetchone()

    assert found == (address.database, address.user, '"$user", public')


@pytest.mark.parametrize("name", NUMBERS)
def test_time_outs_are_whole_numbers_within_bounds(name: str) -> None:
    default, least, most = NUMBERS[name]
    assert getattr(parse("postgresql://u@h/d"), name) == default
    for number in (least, most):
        address = parse(f"postgresql://u@h/d?{name}={number}")
        assert getattr(address, name) == number and parse(address.uri) == address
    for number in (least - 1, most + 1):
        assert f"the {name} of the address is a number of" in refused(f"postgresql://u@h/d?{name}={number}")
    for text in ("", "1.5", "-1", "1s", CANARY):
        assert "is not a whole number" in refused(f"postgresql://u@h/d?{name}={text}")


def test_libpq_is_given_the_time_outs_of_the_network() -> None:
    settings = parse("postgresql://u@h/d?tcp_user_timeout=7&keepalives_idle=6&keepalives_count=5").conninfo()
    assert (settings["tcp_user_timeout"], settings["keepalives"], settings["keepalives_idle"]) == (7000, 1, 6)
    assert (settings["keepalives_interval"], settings["keepalives_count"]) == (10, 5)


@pytest.mark.postgres
def test_a_password_from_around_is_not_lent(pg_uri: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    address = parse(pg_uri)
    (tmp_path / ".pgpass").write_text(f"*:*:*:*:{address.password}\n")
    (tmp_path / ".pgpass").chmod(0o600)
    for name, value in (("HOME", str(tmp_path)), ("PGPASSFILE", str(tmp_path / ".pgpass"))):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PGPASSWORD", address.password or "")

    with pytest.raises(psycopg.OperationalError, match="no password supplied"):
        psycopg.connect(**parse(address.safe).conninfo())  # type: ignore[arg-type]
