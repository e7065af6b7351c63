"""`db`: the schema of a store."""

from __future__ import annotations

from argparse import Namespace

from .command import Command, option
from .session import Session
from .values import count


def upgrade(session: Session, args: Namespace) -> None:
    """Bring a store to the current schema."""
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


def sql(session: Session, args: Namespace) -> None:
    """Print the statements of an upgrade."""
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


def version(session: Session, args: Namespace) -> bool:
    """Compare a store's schema with what this program expects."""
    from .. import store

    address = session.address()
    status = store.schema_status(address)
    told = {"store": address.safe, "version": status.version, "expected": status.expected, "state": status.state}
    if session.out.as_json:
        session.out.value(told)
    else:
        session.out.fields(told)
        if status.state in ("missing", "older"):
            session.out.remark(f"{f'{status.lacks}; ' if status.lacks else ''}run `airflow-mq store upgrade`")
        elif status.state == "newer":
            session.out.remark("install a newer airflow-mq here")
    return status.state == "current"


STORE = (
    Command(
        "upgrade", "make the tables of a store, or bring them up to date", upgrade,
        about="Several upgrades at once do no harm; what is stored stays.",
        example="$ --store sqlite:///queue.db store upgrade",
    ),
    Command(
        "sql", "print the statements of an upgrade, for somebody else to run", sql,
        (
            option("--dialect", choices=("postgres", "sqlite"), help="without asking any store"),
            option("--schema", metavar="NAME", help="the schema of PostgreSQL (default: the store's, airflow_mq)"),
            option("--since", type=count, metavar="N", help="what follows this version (default: the store's)"),
        ),
        example="$ store sql --dialect postgres --schema airflow_mq > upgrade.sql",
    ),
    Command(
        "version", "tell a store's version, and which one this program expects", version,
        about="Exit code 1 if they differ.",
        example="$ store version || airflow-mq store upgrade",
    ),
)  # fmt: skip
