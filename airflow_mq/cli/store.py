"""`store`: the tables of a store."""

from __future__ import annotations

from argparse import Namespace

from ..engine.rules.config import DEFAULT_RING
from ..engine.rules.errors import StoreError
from .arguments import count
from .command import Group, command, option
from .session import Session


@command(example="$ --store sqlite:///queue.db store upgrade")
def upgrade(session: Session, args: Namespace) -> None:
    """Create or upgrade the tables of a store.

    Stored data stays. Several upgrades can run at once.
    """
    from ..engine import store

    address = session.address()
    with session.out.progress("upgrading"):
        applied = store.upgrade(address)
    status = store.schema_status(address)
    session.out.value({"applied": applied, "version": status.version})
    for name in applied:
        session.out.remark(f"applied {name}")
    session.out.remark(
        f"{address.safe} has schema version {status.version}"
        + ("; try: airflow-mq enqueue acme 'an order'" if applied else "; there was nothing to do")
    )


@command(
    option("--dialect", "print them for this database, without asking a store", choices=("postgres", "sqlite")),
    option("--schema NAME", "the PostgreSQL schema (default: the store's, airflow_mq)"),
    option("--since N", "only the statements after this version (default: the store's)", count),
    example="$ store sql --dialect postgres --schema airflow_mq > upgrade.sql",
)
def sql(session: Session, args: Namespace) -> None:
    """Print the statements of an upgrade, to run them by hand."""
    from ..engine import store

    dialect, schema, since = args.dialect, args.schema, args.since
    if dialect is None:
        # For the store that was named, from where it is now.
        address = session.address()
        dialect = "sqlite" if address.driver == "sqlite" else "postgres"
        schema = schema or address.schema
        status = store.schema_status(address)
        if status.state == "unreleased":
            status.require()
        since = status.version if since is None else since
    text = store.upgrade_sql(dialect, schema or "airflow_mq", since or 0)
    if session.out.as_json:
        session.out.value({"sql": text})
    else:
        print(text, end="")


@command(example="$ store version || airflow-mq store upgrade")
def version(session: Session, args: Namespace) -> bool:
    """Compare a store's schema version with the one that this program expects.

    Exit code 1 if they differ.
    """
    from ..engine import store

    address = session.address()
    status = store.schema_status(address)
    facts = {"store": address.safe, "version": status.version, "expected": status.expected, "state": status.state}
    session.out.fields(facts)
    try:
        status.require()
    except StoreError as error:
        session.out.remark(str(error))
        return False
    return True


@command(
    option("kind", "what the role may do", choices=("installer", "runtime", "sender", "reader")),
    option("role ROLE", "name of the role; if missing, created without a password, as far as this user may"),
    option(
        "--origins PATTERN", "sender: only these origins, shell patterns separated by bars (default: all)", default="*"
    ),
    option("--priority", "sender: the highest priority (default: high)", choices=("regular", "high"), default="high"),
    example="$ store grant sender acme_app --origins 'acme|acme/*' --priority regular",
)
def grant(session: Session, args: Namespace) -> None:
    """Grant a database role the least rights that it needs.

    installer: create and upgrade the tables. runtime: all that tasks do. sender: call the SQL functions send and
    send_many, for some origins of one ring. reader: read counts, events, settings and headers, but no payloads. Run
    it again after an upgrade that adds tables. PostgreSQL only.
    """
    from ..engine.store import roles

    statements = roles.grant(
        session.address(),
        args.kind,
        args.role,
        ring=session.ring or DEFAULT_RING,
        origins=args.origins,
        priority=args.priority,
    )
    session.out.value({"role": args.role, "kind": args.kind, "statements": statements})
    for statement in statements:
        session.out.line(statement + ";")
    session.out.remark(f"granted {args.kind} to {args.role}; set its password with \\password {args.role} in psql")


@command(option("role ROLE", "name of the role"), example="$ store revoke acme_app")
def revoke(session: Session, args: Namespace) -> None:
    """Revoke all rights of a database role on a store. PostgreSQL only."""
    from ..engine.store import roles

    statements = roles.revoke(session.address(), args.role)
    session.out.answer({"role": args.role, "statements": statements}, f"revoked all rights of {args.role}")


@command(example="$ store grants")
def grants(session: Session, args: Namespace) -> None:
    """List which database roles may send with which origins. PostgreSQL only."""
    from ..engine.store import roles

    session.out.items(
        roles.sender_grants(session.address()),
        ("role", "ring", "origins", ("highest priority", "priority")),
        "no role has a grant to send; add one with: airflow-mq store grant sender ROLE --origins PATTERN",
    )


STORE = Group(
    "store",
    "create, upgrade and share the tables of a store",
    (upgrade, sql, version, grant, revoke, grants),
    example="$ --store sqlite:///queue.db store upgrade",
)
