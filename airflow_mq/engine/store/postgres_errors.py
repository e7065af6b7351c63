"""Classification of PostgreSQL's errors: one class and one text for each cause, with what to do about it.

The texts repeat nothing that the server or the driver wrote, which may hold an address, a password or a payload.
An error has an SQLSTATE once the session exists. A connection that fails has only a text; the words below are those
of libpq and of a server that writes English. In any other language the driver still reports whether the server asked
for a password.
"""

from __future__ import annotations

import re

import psycopg
from psycopg import errors

from ..rules.errors import (
    Busy,
    InvalidInput,
    LoginRefused,
    MessageQueueError,
    SchemaMissing,
    StoreBusy,
    StoreCorrupt,
    StoreFull,
    StoreReadOnly,
    StoreUnreachable,
)

_NO_WAY = "the PostgreSQL store cannot be reached: "
_SILENT = "the PostgreSQL store does not answer: "

# Errors of which copies are raised.
LOGIN = LoginRefused(f"{_NO_WAY}the server refused the user or the password; correct login and password")
NO_LOGIN = LoginRefused(f"{_NO_WAY}the server does not let this role log in; run ALTER ROLE … LOGIN")
NO_PASSWORD = LoginRefused(f"{_NO_WAY}the server wants a password and none was given; add it to address or connection")
NO_RULE = LoginRefused(
    f"{_NO_WAY}the server has no rule that lets this user in from this host; add a line to its pg_hba.conf, "
    "or set sslmode=require if the rule asks for TLS"
)
METHOD = LoginRefused(
    f"{_NO_WAY}the server asked for another kind of login than is permitted here; let it ask for a password "
    "(scram-sha-256 in pg_hba.conf)"
)
DATABASE = LoginRefused(f"{_NO_WAY}the server has no database of this name; correct the name, or create the database")
NOT_INTO_DATABASE = LoginRefused(
    f"{_NO_WAY}this user may not connect to this database; GRANT CONNECT ON DATABASE … TO …"
)
TLS = StoreUnreachable(
    f"{_NO_WAY}TLS failed; compare sslmode and PGSSLROOTCERT here with the certificate and settings of the server"
)
HOST = StoreUnreachable(f"{_NO_WAY}no host of this name was found; correct the host, or the name server's entry")
REFUSED = StoreUnreachable(
    f"{_NO_WAY}nothing listens at this host and port; correct host and port, or start the server"
)
NETWORK = StoreUnreachable(f"{_NO_WAY}there is no route to this host; check network and firewall")
NO_CONNECTION = StoreUnreachable(f"{_SILENT}no connection was made in time; check host, port and firewall")
TOO_MANY = StoreUnreachable(
    f"{_NO_WAY}the server has no connection left; close unused ones, or raise its max_connections"
)
NO_PRIMARY = StoreUnreachable(
    f"{_NO_WAY}none of its servers accepts writes (a failover, or only standbys are left); try again in a few seconds"
)
STARTING = StoreUnreachable(f"{_NO_WAY}the server is starting or stopping; try again in a few seconds")
NO_REPLY = StoreUnreachable(
    f"{_SILENT}no reply came in time, so the connection was closed; nothing was changed; look at the server and at "
    "the network to it, then try again"
)
LOST = StoreUnreachable(f"{_SILENT}the connection was lost; nothing was changed; try again")
ENDED = StoreUnreachable(
    f"{_SILENT}the server ended the connection (restart, failover or an administrator); nothing was changed; try again"
)
IDLE_TRANSACTION = StoreUnreachable(
    "the server ended a transaction in which this process sent nothing for longer than "
    "idle_in_transaction_session_timeout; nothing was changed; repeat the call, and raise that time-out unless the "
    "process was stopped or cut off"
)
LONG_TRANSACTION = StoreUnreachable(
    "the server ended a transaction that lasted longer than its transaction_timeout; nothing was changed; raise that "
    "time-out for this user, or send less in one call"
)
NO_RESOURCES = StoreUnreachable(
    "the PostgreSQL server is out of memory or another resource; nothing was changed; give it more, then try again"
)
SERVER_FILES = StoreUnreachable(
    "the PostgreSQL server cannot read or write its own files; nothing was changed; look at the server's log and disk"
)
FULL = StoreFull()
CANCELLED = StoreBusy(
    "the server cancelled a statement: it took longer than statement_timeout, or an administrator cancelled it; "
    "nothing was changed; try again, or raise statement_timeout",
)
GAVE_WAY = StoreBusy("the database gave way to another transaction; nothing was changed; try again")
LOCKED = Busy(
    "another transaction held the ring, its origin limit or a row that this call needs for longer than the busy "
    "timeout; nothing was changed; try again",
)
READ_ONLY = StoreReadOnly(
    "the PostgreSQL server is read-only (a standby, or default_transaction_read_only is on); nothing was changed; "
    "use the address of the primary, or let the server be written",
)
NO_RIGHTS = StoreReadOnly(
    "the user of this address may not read or write a table of the queue, so nothing was written; to upgrade or "
    "grant, use the address of the tables' owner; otherwise grant the rights listed under “Roles in PostgreSQL” in the "
    "security page",
)
NO_STATE = StoreReadOnly(
    "the PostgreSQL server refuses this change in its present state, for example because of a publication; nothing was "
    "changed; change what the server names",
)
NO_SCHEMA = SchemaMissing()

#: By SQLSTATE, else by its first two characters.
_STATES = {
    "08": LOST, "25006": READ_ONLY, "25P03": IDLE_TRANSACTION, "25P04": LONG_TRANSACTION, "28": LOGIN,
    "3D000": DATABASE, "3F000": NO_SCHEMA, "40001": GAVE_WAY, "40P01": GAVE_WAY, "42501": NO_RIGHTS,
    "42P01": NO_SCHEMA, "53": NO_RESOURCES, "53100": FULL, "53300": TOO_MANY, "55000": NO_STATE, "55P03": LOCKED,
    "57014": CANCELLED, "57P01": ENDED, "57P02": ENDED, "57P03": STARTING, "57P05": ENDED, "58": SERVER_FILES,
}  # fmt: skip
#: By words of a failed connection, the most specific first. Names in quotation marks are removed before.
_WORDS = (
    (METHOD, ("authentication method requirement", "auth method", "SASL authentication mechanisms")),
    (NO_RULE, ("no pg_hba.conf entry", "pg_hba.conf rejects")),
    (NO_PASSWORD, ("no password supplied",)),
    (NO_LOGIN, ("is not permitted to log in",)),
    (LOGIN, ("authentication failed", 'role "" ', "user not found", "client certificate")),
    (NOT_INTO_DATABASE, ("permission denied for database", 'database "" is not currently accepting')),
    (DATABASE, ('database "" does not exist', "no such database")),
    (TOO_MANY, ("too many clients", "too many connections", "connection slots", "no more connections")),
    (NO_PRIMARY, ("session is read-only",)),
    (STARTING, ("starting up", "shutting down", "not yet accepting", "recovery mode", "not accepting connections")),
    (TLS, ("SSL", "TLS", "certificate", "channel binding")),
    (HOST, ("failed to resolve host", "translate host name", "Name or service not known", "not known in getaddrinfo")),
    (REFUSED, ("Connection refused",)),
    (NETWORK, ("Network is unreachable", "No route to host", "Permission denied")),
    (NO_CONNECTION, ("timeout expired", "timed out")),
)
#: These end a session before the server reads the next statement: a commit that meets them has not happened.
_BEFORE_COMMIT = ("25P03", "25P04", "57P05")


class NoReply(psycopg.OperationalError):
    """No reply came before the client's deadline."""


def named(error: psycopg.Error) -> MessageQueueError:
    """Return our error for one of the driver's."""
    if isinstance(error, errors.DataError):
        return InvalidInput(f"a value of this call cannot be stored: {error.diag.message_primary or error}")
    cause, detail = _cause(error), error.diag.message_primary
    if cause is not None:
        return _copy(cause, f" (the server: {detail})" if cause in (NO_RIGHTS, NO_STATE) else "")
    return StoreCorrupt(f"PostgreSQL refuses what should be possible: {detail or type(error).__name__}")


def named_on_connecting(error: psycopg.Error | UnicodeError) -> MessageQueueError:
    """Return our error for a connection that could not be made."""
    if isinstance(error, UnicodeError):
        # The host has a label that no name server could know.
        return _copy(HOST)
    cause = NOT_INTO_DATABASE if error.sqlstate == "42501" else _cause(error)
    if cause in (None, LOST) and _asked_for_password(error):
        cause = LOGIN
    return _copy(LOST if cause is None else cause)


def _copy(error: MessageQueueError, more: str = "") -> MessageQueueError:
    return type(error)(f"{error}{more}")


def is_own_text(text: str) -> bool:
    """Return whether a text is one of this module's, which hold no secret."""
    return text.partition(" (the server: ")[0] in _TEXTS


def is_in_doubt(error: BaseException | None) -> bool:
    """Return whether a commit that ended with this error may have happened."""
    if not isinstance(error, psycopg.Error) or error.sqlstate in _BEFORE_COMMIT:
        return False
    if error.sqlstate is None:
        # The connection was lost, or the server is silent.
        return isinstance(error, (errors.OperationalError, errors.InterfaceError))
    # An ERROR rolls the transaction back. FATAL and PANIC end the session, whatever became of the commit.
    return error.diag.severity_nonlocalized in ("FATAL", "PANIC") or error.sqlstate[:3] in ("57P", "08")


def _cause(error: psycopg.Error) -> MessageQueueError | None:
    if isinstance(error, NoReply):
        return NO_REPLY
    if isinstance(error, errors.ConnectionTimeout):
        return NO_CONNECTION
    if error.sqlstate is not None:
        return _STATES.get(error.sqlstate) or _STATES.get(error.sqlstate[:2])
    if not isinstance(error, (errors.OperationalError, errors.InterfaceError)):
        return None
    text = re.sub(r'"[^"]*"|\'[^\']*\'', '""', str(error))
    return next((cause for cause, words in _WORDS if any(word in text for word in words)), LOST)


def _asked_for_password(error: psycopg.Error) -> bool:
    connection = error.pgconn
    return connection is not None and bool(connection.needs_password or connection.used_password)


_TEXTS = frozenset(map(str, (*_STATES.values(), *(cause for cause, _ in _WORDS), LOST, NO_REPLY, NOT_INTO_DATABASE)))
