"""Where a store is: a small, closed language of addresses.

    sqlite:///folder/store.db        below the root where one is set, else below the current folder
    sqlite:////folder/store.db       from the top of the file system
    postgresql://user:password@host:port/database?schema=airflow_mq&sslmode=require&connect_timeout=10
    …?origins=acme%7Cacme/*&priority=regular      whoever uses this address sends as acme, and nothing urgent

`postgres://` means the same as `postgresql://`. User, password, database and paths are percent-encoded: `@` is
`%40`, `/` is `%2F`, `%` is `%25`. Host, user and database have to be named. The parameters are a closed list:
`schema`, `sslmode`, the time-outs of `NUMBERS`, and `origins` and `priority`, which go with SQLite too
(`airflow_mq.core.permit` says what they mean). Whoever may write an
address, say in a connection of Airflow, shall reach a store with it, and not borrow what the process around it is
or knows. Hence

* one host, over TCP: through a Unix socket the server would trust the account that the process runs under;
* no other libpq option, and nothing lent from around: neither `PGPASSWORD`, `PGOPTIONS` and `PGHOSTADDR`, nor the
  password file, nor a client certificate, nor a Kerberos ticket (`StoreAddress.conninfo`). What can only make a
  connection stricter or tells whom to trust stays with the environment: `PGSSLROOTCERT`, `PGCHANNELBINDING`,
  `PGREQUIREAUTH`, and `PGSSLMODE` where the address names no sslmode;
* no parameter of SQLite's own, no `file:` address, no store in memory, no file behind a symbolic link.

What is refused is refused with `AddressRefused`. Its text never repeats a part of the address that could hold a
password, however wrongly that was written.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, unquote

from airflow_mq.core.errors import AddressRefused, InvalidInput
from airflow_mq.core.permit import OPEN, Permit
from airflow_mq.store.files import SQLITE_FORM, checked_file, refuse_network_file_system

__all__ = ["StoreAddress", "parse", "refuse_network_file_system", "sqlite_address"]

#: Kinds of login for which an address has all that is needed; none is lent from the process, as a ticket would be.
LOGINS = ("scram-sha-256", "md5", "password", "none")
DEFAULT_SCHEMA = "airflow_mq"
DEFAULT_PORT = 5432
DEFAULT_CONNECT_TIMEOUT = 10
#: Whole numbers that an address may set: default, least, most. Seconds, but for the count.
NUMBERS = {
    "connect_timeout": (DEFAULT_CONNECT_TIMEOUT, 1, 60),
    "statement_timeout": (300, 1, 86_400),
    "idle_in_transaction_session_timeout": (60, 1, 3_600),
    "tcp_user_timeout": (30, 1, 600),
    "keepalives_idle": (30, 1, 3_600),
    "keepalives_interval": (10, 1, 600),
    "keepalives_count": (3, 1, 50),
}
SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
#: Who may send.
PERMITTED = ("origins", "priority")
PARAMETERS = ("schema", "sslmode", *NUMBERS, *PERMITTED)

POSTGRES_FORM = "postgresql://user:password@host:port/database"

# Only these are named when they are refused; any other name may be a piece of a badly written password.
_KNOWN_AND_REFUSED = (
    "application_name cache channel_binding client_encoding dbname fallback_application_name gssencmode host hostaddr "
    "immutable keepalives krbsrvname load_balance_hosts load_extension mode nolock options passfile password port "
    "replication require_auth requirepeer service servicefile sslcert sslcertmode sslcrl sslkey sslkeylogfile "
    "sslnegotiation sslpassword sslrootcert target_session_attrs uri user vfs"
)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}(?=:)")
_POSTGRES = re.compile(
    r"(?:(?P<user>[^:@/?#\s]*)(?::(?P<password>[^@/?#\s]*))?@)?"
    r"(?P<host>\[[0-9A-Za-z:.%]*\]|[^:@/?#\s\[\]]*)(?::(?P<port>[^:@/?#\s\[\]]*))?"
    r"(?:/(?P<database>[^@/?#\s]*))?(?:\?(?P<query>[^#\s]*))?"
)
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?\.?")
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,30}")
_SENDERS = re.compile(r"(?:origins|priority)=[^#]*\Z")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
#: A file of SQLite knows no schemas.
SQLITE_PREFIX = "mq_"
# Below a device nothing can exist, so libpq finds no file there and says nothing. (Left empty, it would look at home.)
_NO_FILE = os.devnull + "/none"


@dataclass(frozen=True)
class StoreAddress:
    """The address of one store, checked however it was made: by `parse`, `sqlite_address` or from its parts."""

    driver: Literal["sqlite", "postgresql"]
    path: Path | None = None
    host: str | None = None
    port: int = DEFAULT_PORT
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    database: str | None = None
    schema: str = DEFAULT_SCHEMA
    sslmode: str | None = None
    connect_timeout: int = DEFAULT_CONNECT_TIMEOUT
    #: After so many seconds the server cancels a statement, and soon after that the client closes the connection.
    statement_timeout: int = NUMBERS["statement_timeout"][0]
    #: After so many seconds without a statement the server ends an open transaction, and releases what it locked.
    idle_in_transaction_session_timeout: int = NUMBERS["idle_in_transaction_session_timeout"][0]
    #: Seconds for which either end waits for the other's network to acknowledge what it sent.
    tcp_user_timeout: int = NUMBERS["tcp_user_timeout"][0]
    #: Seconds of silence before the first probe of a connection, between probes, and how many may stay unanswered.
    keepalives_idle: int = NUMBERS["keepalives_idle"][0]
    keepalives_interval: int = NUMBERS["keepalives_interval"][0]
    keepalives_count: int = NUMBERS["keepalives_count"][0]
    #: What whoever uses this address is confined to when they send.
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
        """What tables' names begin with. The schema's name was checked when the address was read."""
        return SQLITE_PREFIX if self.driver == "sqlite" else f'"{self.schema}".'

    @property
    def permit(self) -> Permit:
        """Who may send."""
        if self.origins is None and self.priority is None:
            return OPEN
        try:
            return Permit(self.origins, self.priority)
        except InvalidInput as error:
            raise AddressRefused(str(error)) from None

    @property
    def safe(self) -> str:
        """The address without its password, for people and logs."""
        return self._written(with_password=False)

    @property
    def uri(self) -> str:
        """The address as `parse` reads it, password included: not for people, logs or command lines."""
        return self._written(with_password=True)

    def conninfo(self) -> dict[str, str | int]:
        """Return what to give to `psycopg.connect`, so that libpq adds nothing of its surroundings."""
        if self.host is None or self.user is None or self.database is None:
            raise AddressRefused("only an address of PostgreSQL has connection parameters")
        settings: dict[str, str | int] = {
            "host": self.host,
            "hostaddr": "",  # or PGHOSTADDR would lead somewhere else
            "port": self.port,
            "user": self.user,
            "password": self.password or "",  # or PGPASSWORD would go to any host that an address names
            "passfile": _NO_FILE,  # and so would what ~/.pgpass has for any host
            "dbname": self.database,
            "sslcert": _NO_FILE,  # the process's own certificate, key and ticket are not the address's to use
            "sslkey": _NO_FILE,
            "gssencmode": "disable",
            "options": "",
            "target_session_attrs": "any",
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
        """Return what to give to `sqlite3.connect(…, uri=True)`.

        Opened with `ro` nothing is created. Left to itself SQLite would make (and leave) the files -wal and -shm
        beside a store that nobody has open; while there is no -wal, the file alone holds everything and is read as
        it is. Should a writer come at that very moment, the worst is a read that fails.
        """
        if self.path is None:
            raise AddressRefused("only an address of SQLite has a file")
        still = mode == "ro" and not os.path.lexists(f"{self.path}-wal")
        return f"{self.path.as_uri()}?mode={mode}{'&immutable=1' if still else ''}"

    def _written(self, *, with_password: bool) -> str:
        if self.path is not None:
            return f"sqlite:///{quote(str(self.path))}{self._parameters(PERMITTED)}"
        host = f"[{self.host}]" if ":" in (self.host or "") else self.host
        secret = f":{quote(self.password, safe='')}" if with_password and self.password else ""
        written = f"postgresql://{quote(self.user or '', safe='')}{secret}@{host}:{self.port}"
        return f"{written}/{quote(self.database or '', safe='')}{self._parameters(PARAMETERS)}"

    def _parameters(self, names: Iterable[str]) -> str:
        said = ((name, getattr(self, name)) for name in names)
        named = [f"{name}={quote(str(value))}" for name, value in said if value != _DEFAULTS[name]]
        return f"{'?' if named else ''}{'&'.join(named)}"


_DEFAULTS = {
    "schema": DEFAULT_SCHEMA, "sslmode": None, "origins": None, "priority": None,
    **{name: default for name, (default, _, _) in NUMBERS.items()},
}  # fmt: skip


def parse(uri: str, *, root: Path | None = None) -> StoreAddress:
    """Read an address; with a root, a SQLite file has to be below it. Nothing is opened or created."""
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
        rest = "/" + rest  # refused below, with the reason
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
        raise AddressRefused(
            f"the address does not read as {POSTGRES_FORM}: one host, and : @ / ? # % and blanks "
            "percent-encoded in user, password and database"
        )
    user, database = (_decoded(found[part] or "", part) for part in ("user", "database"))
    # Whether the rest is what it seems is known only now; so the parameters are looked at last.
    _check_named(user=user, host=found["host"], database=database)
    given = dict(_parameters(found["query"]))
    numbers: dict[str, Any] = {name: _number(given[name], name) for name in NUMBERS if name in given}
    return StoreAddress(
        "postgresql",
        host=found["host"][1:-1] if found["host"].startswith("[") else found["host"],
        port=_number(found["port"], "port") if found["port"] is not None else DEFAULT_PORT,
        user=user,
        password=_decoded(found["password"] or "", "password") or None,
        database=database,
        schema=given.get("schema", DEFAULT_SCHEMA),
        sslmode=given.get("sslmode"),
        **numbers,
        origins=given.get("origins"),
        priority=given.get("priority"),
    )


def _parameters(query: str | None, known: Sequence[str] = PARAMETERS) -> Iterator[tuple[str, str]]:
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
    _check_host(address.host or "")
    for what, text in (("user", address.user or ""), ("database", address.database or "")):
        if not text.isprintable() or len(text.encode()) > 63:
            raise AddressRefused(f"the {what} of the address is longer than 63 bytes or cannot be printed")
    if "=" in (address.database or "") or "://" in (address.database or ""):
        raise AddressRefused("the database of the address is a plain name, without = and ://")
    if any(mark == "\0" or "\ud800" <= mark <= "\udfff" for mark in address.password or ""):
        raise AddressRefused("the password of the address has a NUL in it, or half of a character")
    if not 1 <= address.port <= 65535:
        raise AddressRefused("the port of the address is a number from 1 to 65535")
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
    """Whether libpq can be told which kinds of login a server may ask for."""
    from psycopg import pq

    return pq.version() >= 160_000


def _logins() -> str:
    """Kinds of login that a server may ask for; of `LOGINS` those that `PGREQUIREAUTH` leaves."""
    named = [one.strip() for one in os.environ.get("PGREQUIREAUTH", "").split(",") if one.strip()]
    refused = [one[1:] for one in named if one.startswith("!")]
    left = [one for one in LOGINS if one not in refused and (refused or not named or one in named)]
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
        "the host of the address is one name or one IP address (IPv6 in brackets); "
        "neither several hosts nor the folder of a Unix socket are taken"
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
