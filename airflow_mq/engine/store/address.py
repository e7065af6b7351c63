"""Store addresses: a small, closed language.

    sqlite:///folder/store.db        below the root where one is set, else below the current folder
    sqlite:////folder/store.db       from the top of the file system
    postgresql://user:password@host:port/database?schema=airflow_mq&sslmode=require&connect_timeout=10
    postgresql://user@one:5432,two:5432/database?target_session_attrs=read-write      the one that accepts writes
    …?origins=acme%7Cacme/*&priority=regular      users of this address send as acme, at regular priority only

`postgres://` means the same as `postgresql://`. User, password, database and paths are percent-encoded: `@` is
`%40`, `/` is `%2F`, `%` is `%25`. Host, user and database are required. The parameters are a closed list:
`schema`, `sslmode`, the time-outs of `NUMBERS`, and `origins` and `priority`, which SQLite takes too
(see `rules.patterns`). An address may come from a user who can edit Airflow connections. Such a user
may reach a store, but must not borrow identity or secrets of the process. Hence:

* hosts over TCP: through a Unix socket the server would trust the account of the process;
* no other libpq option and nothing from the environment: no `PGPASSWORD`, `PGOPTIONS` or `PGHOSTADDR`, no password
  file, no client certificate, no Kerberos ticket (`StoreAddress.conninfo`). Variables that only make a connection
  stricter stay in force: `PGSSLROOTCERT`, `PGCHANNELBINDING`, `PGREQUIREAUTH`, and `PGSSLMODE` where the address names
  no sslmode;
* no parameter of SQLite's own, no `file:` address, no store in memory, no file behind a symbolic link.

Any other address raises `AddressRefused`. Its text never repeats a part of the address that could hold a password,
even in a malformed address.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, unquote

from airflow_mq.engine.rules.errors import AddressRefused, InvalidInput
from airflow_mq.engine.rules.patterns import OPEN, Permit
from airflow_mq.engine.store.files import SQLITE_FORM, checked_file, refuse_network_file_system

__all__ = ["StoreAddress", "parse", "refuse_network_file_system", "sqlite_address"]

#: Kinds of login that need nothing but the address.
LOGINS = ("scram-sha-256", "md5", "password", "none")
DEFAULT_SCHEMA, DEFAULT_PORT = "airflow_mq", 5432
SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
#: The parameter by which libpq finds the one of several servers that accepts writes, and its only value here.
TARGET, READ_WRITE = "target_session_attrs", "read-write"
#: Parameters that restrict senders.
PERMITTED = ("origins", "priority")

POSTGRES_FORM = "postgresql://user:password@host:port/database"
_NOT_READ = (
    f"the address does not read as {POSTGRES_FORM}: one host, or several with commas, and : @ / ? # % and blanks "
    "percent-encoded in user, password and database"
)

# Errors repeat only these names; any other name may be a piece of a badly written password.
_KNOWN_AND_REFUSED = (
    "application_name cache channel_binding client_encoding dbname fallback_application_name gssencmode host hostaddr "
    "immutable keepalives krbsrvname load_balance_hosts load_extension mode nolock options passfile password port "
    "replication require_auth requirepeer service servicefile sslcert sslcertmode sslcrl sslkey sslkeylogfile "
    "sslnegotiation sslpassword sslrootcert target_session_attrs uri user vfs"
)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}(?=:)")
_POSTGRES = re.compile(
    r"(?:(?P<user>[^:@/?#\s]*)(?::(?P<password>[^@/?#\s]*))?@)?"
    r"(?P<servers>[^@/?#\s]*)"
    r"(?:/(?P<database>[^@/?#\s]*))?(?:\?(?P<query>[^#\s]*))?"
)
_SERVER = re.compile(r"(?:\[(?P<six>[0-9A-Za-z:.%]*)\]|(?P<name>[^:\[\]]*))(?::(?P<port>[^:\[\]]*))?")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?\.?")
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,30}")
_SENDERS = re.compile(r"(?:origins|priority)=[^#]*\Z")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
#: Prefix of table names in SQLite, which has no schemas.
SQLITE_PREFIX = "mq_"
# No file can exist below a device, so libpq finds none. (With an empty value libpq would use the home folder.)
_NO_FILE = os.devnull + "/none"


def _number_field(default: int, most: int) -> Any:
    """Return a whole number that an address may set. All but the count are seconds."""
    return field(default=default, metadata={"bounds": (1, most)})


@dataclass(frozen=True)
class StoreAddress:
    """The address of one store, checked however it is made: by `parse`, by `sqlite_address` or from its parts."""

    driver: Literal["sqlite", "postgresql"]
    path: Path | None = None
    #: One host, or several separated by commas, each with a port of its own or with that of the address.
    host: str | None = None
    port: int = DEFAULT_PORT
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    database: str | None = None
    schema: str = DEFAULT_SCHEMA
    sslmode: str | None = None
    connect_timeout: int = _number_field(10, 60)
    #: Seconds after which the server cancels a statement; soon after that the client closes the connection.
    statement_timeout: int = _number_field(300, 86_400)
    #: Seconds without a statement after which the server ends an open transaction and releases its locks.
    idle_in_transaction_session_timeout: int = _number_field(60, 3_600)
    #: Seconds for which either end waits for the other to acknowledge sent data.
    tcp_user_timeout: int = _number_field(30, 600)
    #: Seconds of silence before the first probe, seconds between probes, and unanswered probes to tolerate.
    keepalives_idle: int = _number_field(30, 3_600)
    keepalives_interval: int = _number_field(10, 600)
    keepalives_count: int = _number_field(3, 50)
    #: Restrictions of senders that use this address.
    origins: str | None = None
    priority: str | None = None

    def __post_init__(self) -> None:
        _ = self.permit
        if self.driver == "postgresql":
            _check_postgres(self)
        elif self.path is None or not self.path.is_absolute():
            raise AddressRefused("a store is kept in SQLite, with an absolute path, or in PostgreSQL")

    def __str__(self) -> str:
        return self.safe

    @property
    def prefix(self) -> str:
        """The prefix of table names. The schema's name was checked when the address was made."""
        return SQLITE_PREFIX if self.driver == "sqlite" else f'"{self.schema}".'

    @property
    def file(self) -> Path:
        """The file of a store in SQLite."""
        assert self.path is not None, "only an address of SQLite has a file"
        return self.path

    @property
    def permit(self) -> Permit:
        """The restrictions of senders."""
        if self.origins is None and self.priority is None:
            return OPEN
        try:
            return Permit(self.origins, self.priority)
        except InvalidInput as error:
            raise AddressRefused(str(error)) from None

    @property
    def safe(self) -> str:
        """The address without its password, for display and logs."""
        return self._written(with_password=False)

    @property
    def place(self) -> str:
        """The place of the store, by which addresses with other users or parameters are recognized as the same one."""
        if self.path is not None:
            return f"sqlite:{os.path.realpath(self.path)}"
        hosts = (("localhost" if host in ("127.0.0.1", "::1") else host.lower(), port) for host, port in self.servers)
        named = ",".join(sorted(f"{host}:{port}" for host, port in hosts))
        return f"postgresql:{named}/{self.database}?{self.schema}"

    @property
    def servers(self) -> list[tuple[str, int]]:
        """The servers of which one accepts writes: the host and the port of each."""
        host = self.host or ""
        return _servers(host, self.port) if "," in host or host[:1] == "[" else [(host, self.port)]

    @property
    def authority(self) -> str:
        """The servers as an address writes them."""
        return _joined(self.servers)

    @property
    def uri(self) -> str:
        """The address as `parse` reads it, with its password: not for display, logs or command lines."""
        return self._written(with_password=True)

    def conninfo(self) -> dict[str, Any]:
        """Return the parameters of `psycopg.connect`; libpq adds none from its environment."""
        if self.host is None or self.user is None or self.database is None:
            raise AddressRefused("only an address of PostgreSQL has connection parameters")
        settings: dict[str, Any] = {
            "host": ",".join(host for host, _ in self.servers),
            "hostaddr": "",  # else PGHOSTADDR would apply
            "port": ",".join(str(port) for _, port in self.servers),
            "user": self.user,
            "password": self.password or "",  # else PGPASSWORD would go to any host of an address
            "passfile": _NO_FILE,  # else passwords of ~/.pgpass would, too
            "dbname": self.database,
            "sslcert": _NO_FILE,  # an address must not use the certificate, key or ticket of the process
            "sslkey": _NO_FILE,
            "gssencmode": "disable",
            "options": "",
            "target_session_attrs": READ_WRITE if len(self.servers) > 1 else "any",
            "client_encoding": "UTF8",
            "application_name": "airflow_mq",
            "connect_timeout": self.connect_timeout,
            "keepalives": 1,
            "keepalives_idle": self.keepalives_idle,
            "keepalives_interval": self.keepalives_interval,
            "keepalives_count": self.keepalives_count,
            "tcp_user_timeout": self.tcp_user_timeout * 1000,
        }
        if _can_require_auth():
            settings["require_auth"] = _logins()
        return settings if self.sslmode is None else {**settings, "sslmode": self.sslmode}

    def file_uri(self, mode: Literal["ro", "rw", "rwc"]) -> str:
        """Return the address for `sqlite3.connect(…, uri=True)`.

        Mode `ro` creates nothing. By default SQLite would create (and leave) the files -wal and -shm beside a store
        that no process has open. Without a -wal the file alone holds everything, so it is opened as immutable. If a
        writer opens the store at that moment, the worst result is a failed read.
        """
        still = mode == "ro" and not os.path.lexists(f"{self.file}-wal")
        return f"{self.file.as_uri()}?mode={mode}{'&immutable=1' if still else ''}"

    def _written(self, *, with_password: bool) -> str:
        if self.path is not None:
            return f"sqlite:///{quote(str(self.path))}{self._parameters(PERMITTED)}"
        secret = f":{quote(self.password, safe='')}" if with_password and self.password else ""
        written = f"postgresql://{quote(self.user or '', safe='')}{secret}@{self.authority}"
        found = f"{written}/{quote(self.database or '', safe='')}{self._parameters(PARAMETERS)}"
        return f"{found}{'&' if '?' in found else '?'}{TARGET}={READ_WRITE}" if len(self.servers) > 1 else found

    def _parameters(self, names: Iterable[str]) -> str:
        values = ((name, getattr(self, name)) for name in names)
        named = [f"{name}={quote(str(value))}" for name, value in values if value != _DEFAULTS[name]]
        return f"{'?' if named else ''}{'&'.join(named)}"


_DEFAULTS = {one.name: one.default for one in fields(StoreAddress)}
#: The default, the least and the most of each number.
NUMBERS: dict[str, tuple[int, int, int]] = {
    one.name: (one.default, *one.metadata["bounds"]) for one in fields(StoreAddress) if one.metadata
}
PARAMETERS = ("schema", "sslmode", *NUMBERS, *PERMITTED)


def parse(uri: str, *, root: Path | None = None) -> StoreAddress:
    """Return the parsed address; with a root, require a SQLite file below it. Open and create nothing."""
    scheme, separator, rest = uri.partition("://")
    if not uri.isprintable() or uri != uri.strip():
        raise AddressRefused("the address has a character that cannot be printed, or blanks around it")
    if separator and scheme == "sqlite":
        return _parse_sqlite(rest, root)
    if separator and scheme in ("postgresql", "postgres"):
        return _parse_postgres(rest)
    found = _SCHEME.match(uri)
    what = f"that starts with {found[0]}:" if found else "that does not begin with its kind"
    raise AddressRefused(f"an address {what} is not known; a store is at {SQLITE_FORM} or at {POSTGRES_FORM}")


# -- SQLite --


def _parse_sqlite(rest: str, root: Path | None) -> StoreAddress:
    rest, mark, query = rest.partition("?")
    if "#" in rest or (mark and not _SENDERS.match(query)):
        raise AddressRefused(f"an address of SQLite takes no parameters but origins and priority; write {SQLITE_FORM}")
    if rest == ":memory:":
        rest = "/" + rest  # rejected below, with the reason
    if rest and not rest.startswith("/"):
        raise AddressRefused(f"a file has no host, so it takes three slashes: {SQLITE_FORM}")
    path = _decoded(rest[1:], "path")
    return sqlite_address(path, root=root, **dict(_parameters(query if mark else None, PERMITTED)))


def sqlite_address(
    path: str, *, root: Path | None = None, origins: str | None = None, priority: str | None = None
) -> StoreAddress:
    """Return the address of a SQLite file, given by its plain path."""
    return StoreAddress("sqlite", path=checked_file(path, root), origins=origins, priority=priority)


# -- PostgreSQL --


def _parse_postgres(rest: str) -> StoreAddress:
    found = _POSTGRES.fullmatch(rest)
    if found is None:
        raise AddressRefused(_NOT_READ)
    user, database = (_decoded(found[part] or "", part) for part in ("user", "database"))
    # Only now are the other parts known to be what they seem, so the parameters come last.
    _check_named(user=user, host=found["servers"], database=database)
    servers = _servers(found["servers"], DEFAULT_PORT)
    given = dict(_parameters(found["query"], (*PARAMETERS, TARGET)))
    if (len(servers) > 1, given.pop(TARGET, None)) not in ((False, None), (True, READ_WRITE)):
        raise AddressRefused(f"an address of several hosts ends in {TARGET}={READ_WRITE}, and no other one does")
    numbers: dict[str, Any] = {name: _number(text, name) for name, text in given.items() if name in NUMBERS}
    if len(servers) == 1:
        numbers["port"] = servers[0][1]
    return StoreAddress(
        "postgresql",
        host=_joined(servers) if len(servers) > 1 else servers[0][0],
        user=user,
        password=_decoded(found["password"] or "", "password") or None,
        database=database,
        **{**given, **numbers},
    )


def _servers(text: str, port: int) -> list[tuple[str, int]]:
    """Return the host and the port of each server of a list; `port` is that of the servers that name none."""
    servers = []
    for part in text.split(","):
        found = _SERVER.fullmatch(part)
        if found is None:
            raise AddressRefused(_NOT_READ)
        own = found["port"]
        servers.append((found["name"] or found["six"] or "", port if own is None else _number(own, "port")))
    return servers


def _joined(servers: Iterable[tuple[str, int]]) -> str:
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in servers)


def _parameters(query: str | None, known: Sequence[str]) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for pair in query.split("&") if query is not None else ():
        name, _, value = pair.partition("=")
        if name not in known or name in seen:
            called = f"the parameter {name}" if name in _KNOWN_AND_REFUSED.split() or name in seen else "a parameter"
            why = "is given twice" if name in seen else "is not taken"
            raise AddressRefused(f"{called} of the address {why}; there are only {', '.join(known)}, once each")
        seen.add(name)
        yield name, _decoded(value, name)


def _check_named(**parts: str | None) -> None:
    lacking = [part for part, value in parts.items() if not value]
    if lacking:
        raise AddressRefused(f"the address names no {' and no '.join(lacking)}; write {POSTGRES_FORM}")


def _check_postgres(address: StoreAddress) -> None:
    _check_named(user=address.user, host=address.host, database=address.database)
    for host, port in address.servers:
        _check_host(host)
        if not 1 <= port <= 65535:
            raise AddressRefused("the port of the address is a number from 1 to 65535")
    for what, text in (("user", address.user or ""), ("database", address.database or "")):
        if not text.isprintable() or len(text.encode()) > 63:
            raise AddressRefused(f"the {what} of the address is longer than 63 bytes or cannot be printed")
    if "=" in (address.database or "") or "://" in (address.database or ""):
        raise AddressRefused("the database of the address is a plain name, without = and ://")
    if any(mark == "\0" or "\ud800" <= mark <= "\udfff" for mark in address.password or ""):
        raise AddressRefused("the password of the address has a NUL in it, or half of a character")
    if (
        not _SCHEMA.fullmatch(address.schema)
        or address.schema.startswith("pg_")
        or address.schema == "information_schema"
    ):
        raise AddressRefused(
            "the schema of the address is a to z, 0 to 9 and _, at most 31 of them, not a digit first, and not one of "
            "PostgreSQL's own"
        )
    if address.sslmode is not None and address.sslmode not in SSL_MODES:
        raise AddressRefused(f"the sslmode of the address is one of {', '.join(SSL_MODES)}")
    for name, (_, least, most) in NUMBERS.items():
        if not least <= getattr(address, name) <= most:
            unit = "probes" if name == "keepalives_count" else "seconds"
            raise AddressRefused(f"the {name} of the address is a number of {unit} from {least} to {most}")


def _can_require_auth() -> bool:
    """Return whether libpq can restrict the kinds of login that a server may ask for."""
    from psycopg import pq

    return pq.version() >= 160_000


def _logins() -> str:
    """Return the kinds of login that a server may ask for: those of `LOGINS` that `PGREQUIREAUTH` allows."""
    named = [kind.strip() for kind in os.environ.get("PGREQUIREAUTH", "").split(",") if kind.strip()]
    refused = [kind[1:] for kind in named if kind.startswith("!")]
    left = [kind for kind in LOGINS if kind not in refused and (refused or not named or kind in named)]
    if not left:
        raise AddressRefused(
            f"PGREQUIREAUTH leaves no kind of login: a store is reached by {', '.join(LOGINS)}; add one of these to it"
        )
    return ",".join(left)


def _check_host(host: str) -> None:
    if ":" in host:
        try:
            if "%" not in host:
                ipaddress.IPv6Address(host)
                return
        except ValueError:
            pass
    elif _HOST.fullmatch(host):
        return
    raise AddressRefused(
        "a host of the address is one name or one IP address (IPv6 in brackets), and not the folder of a Unix socket"
    )


def _number(text: str, what: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text):
        raise AddressRefused(f"the {what} of the address is not a whole number, or too large")
    return int(text)


def _decoded(text: str, what: str) -> str:
    if _BAD_ESCAPE.search(text):
        raise AddressRefused(f"the {what} of the address has a % that starts no escape; write % as %25")
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise AddressRefused(f"the {what} of the address is not UTF-8 once its escapes are undone") from None
