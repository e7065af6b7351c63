"""`store`: the tables of a store."""

from __future__ import annotations

from argparse import Namespace

from .command import Group, command, option
from .session import Session
from .values import count


@command(example="$ --store sqlite:///queue.db store upgrade")
def upgrade(session: Session, args: Namespace) -> None:
    """Create or upgrade the tables of a store.

    Stored data stays. Several upgrades can run at once.
    """
    from .. import store

    address = session.address()
    with session.out.progress("upgrading"):
        applied = store.upgrade(address)
    status = store.schema_status(address)
    if session.out.as_json:
        session.out.value({"applied": applied, "version": status.version})
        return
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
    from .. import store

    dialect, schema, since = args.dialect, args.schema, args.since
    if dialect is None:
        # For the store that was named, from where it is now.
        address = session.address()
        dialect = "sqlite" if address.driver == "sqlite" else "postgres"
        schema = schema or address.schema
        if since is None:
            since = store.schema_status(address).version
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
    from .. import store

    address = session.address()
    status = store.schema_status(address)
    facts = {"store": address.safe, "version": status.version, "expected": status.expected, "state": status.state}
    session.out.fields(facts)
    if not session.out.as_json:
        if status.state in ("missing", "older"):
            session.out.remark(f"{f'{status.lacks}; ' if status.lacks else ''}run `airflow-mq store upgrade`")
        elif status.state == "newer":
            session.out.remark("install a newer airflow-mq here")
    return status.state == "current"


STORE = Group(
    "store",
    "create and upgrade the tables of a store",
    (upgrade, sql, version),
    example="$ --store sqlite:///queue.db store upgrade",
)
