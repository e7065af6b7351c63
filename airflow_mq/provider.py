"""Provider information for Airflow: connection type, operators, triggers, settings and commands.

Airflow reads this at every start, also when it only parses DAGs, so the module imports nothing.
"""

from __future__ import annotations

CONNECTION_TYPE = "airflow_mq"
HOOK_NAME = "Message queue"
#: Scheme of the assets that are queues, and of triggers.
SCHEME = "airflow-mq"
DRIVERS = ("sqlite", "postgresql")
SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")

#: How the connection form shows Airflow's own fields.
BEHAVIOUR: dict[str, list[str] | dict[str, str]] = {
    "hidden-fields": [],
    "relabeling": {
        "host": "PostgreSQL host",
        "port": "PostgreSQL port",
        "login": "PostgreSQL user",
        "password": "PostgreSQL password",
        "schema": "PostgreSQL database",
    },
    "placeholders": {
        "host": "db.example.com",
        "port": "5432",
        "login": "airflow_mq",
        "schema": "queues",
        "path": "/var/lib/airflow-mq/store.db",
        "db_schema": "airflow_mq",
        "ring": "default",
        "origins": "acme|acme/*",
    },
}


def _field(label: str, description: str, *, of: str = "string", **schema: object) -> dict[str, object]:
    return {"label": label, "description": description, "schema": {"type": [of, "null"], **schema}}


def _number(label: str, default: int, most: int, unit: str = "Seconds") -> dict[str, object]:
    text = f"{unit}, 1 to {most}; {default} if left empty."
    return _field(label, text, of="integer", minimum=1, maximum=most)


#: Keys that `extra` may have; the hook refuses all others.
FIELDS = {
    "driver": _field(
        "Driver",
        "Database of the queue: SQLite uses only the file below, PostgreSQL the fields above. If left empty: SQLite if "
        "there is a file and no host.",
        enum=list(DRIVERS),
    ),
    "path": _field(
        "SQLite file",
        "On a local disk of the machine that runs the tasks, such as /var/lib/airflow-mq/store.db; "
        "below [airflow_mq] sqlite_root if that is set.",
    ),
    "db_schema": _field(
        "PostgreSQL schema",
        "The schema that holds the tables: a to z, 0 to 9 and _; airflow_mq if left empty.",
        pattern="^[a-z_][a-z0-9_]{0,30}$",
    ),
    "sslmode": _field(
        "PostgreSQL SSL mode",
        "As in libpq; the environment decides if left empty.",
        enum=list(SSL_MODES),
    ),
    "connect_timeout": _number("PostgreSQL connect timeout", 10, 60),
    "statement_timeout": _number("PostgreSQL statement timeout", 300, 86_400),
    "idle_in_transaction_session_timeout": _number("PostgreSQL idle transaction timeout", 60, 3_600),
    "tcp_user_timeout": _number("TCP user timeout", 30, 600),
    "keepalives_idle": _number("TCP keepalives idle", 30, 3_600),
    "keepalives_interval": _number("TCP keepalives interval", 10, 600),
    "keepalives_count": _number("TCP keepalives count", 3, 50, unit="Probes"),
    "ring": _field("Ring", "Ring of operators that name none; default if left empty."),
    "origins": _field(
        "Origins to send with",
        "Origins that users of this connection may send with, such as acme|acme/*; any if left empty.",
    ),
    "priority": _field(
        "Priority to send with",
        "Priority that users of this connection may send with; any if left empty.",
        enum=["regular"],
    ),
}

#: Options of the section `[airflow_mq]`: type, version, default, example, and description.
_OPTIONS: dict[str, tuple[str, str, str, str | None, str]] = {
    "sqlite_root": (
        "string", "0.1.0", "", "/var/lib/airflow-mq",
        "Folder that SQLite stores named by connections have to be in. An address outside of it is refused, also "
        "through `..` or a symbolic link; a relative address starts there. If it is empty, any local file is accepted: "
        "set it if people who may edit connections must not be able to point Airflow at other files.",
    ),
    "metrics_origins": (
        "integer", "0.2.0", "0", "10",
        "Number of origins of a ring that have their own metrics: those with the most messages, and those that waited "
        "longest. A backend stores each name for ever, so choose a small number; 0 is none.",
    ),
    "metrics_blocks": (
        "integer", "0.2.0", "20", "100",
        "Number of latest blocks over which fairness metrics are computed; 0 disables them.",
    ),
    "traces": (
        "boolean", "0.2.0", "False", "True",
        "Whether messages that tasks send carry the trace of the task, and blocks are traced. Where traces go is "
        "configured by [traces] of Airflow's configuration, and by OpenTelemetry's variables.",
    ),
    "log_error_texts": (
        "boolean", "0.4.0", "False", "True",
        "Whether the logs of tasks show the texts of exceptions that processors raise. Such a text may quote the "
        "payload of a message; events and lineage never contain it.",
    ),
    "connections": (
        "string", "0.2.0", "", "orders_queue, invoices_queue",
        "Ids of connections that the page shows, separated by commas, in addition to those of Airflow's database and "
        "of the environment: those in a secrets backend.",
    ),
    "overweight_dag": (
        "string", "0.2.0", "overweight_by_hand", None,
        "The DAG that the page starts to execute a set-aside message; its params are those of "
        "`dags/overweight_by_hand.py`, where `CONNECTIONS` lists the connections that it may use.",
    ),
    "page_refresh_seconds": ("integer", "0.2.0", "5", None, "Seconds between two refreshes of the page."),
}  # fmt: skip


def get_provider_info() -> dict[str, object]:
    """Return everything this package adds to Airflow, in the form of Airflow's provider schema."""
    return {
        "package-name": "airflow-mq",
        "name": HOOK_NAME,
        "description": "A message queue in your own database, served fairly and within a budget.",
        "integrations": [{"integration-name": HOOK_NAME, "tags": ["software"]}],
        "hooks": _modules("hooks"),
        "connection-types": [
            {
                "connection-type": CONNECTION_TYPE,
                "hook-class-name": "airflow_mq.hooks.MessageQueueHook",
                "hook-name": HOOK_NAME,
                "ui-field-behaviour": dict(BEHAVIOUR),
                "conn-fields": dict(FIELDS),
            }
        ],
        "operators": _modules(
            *(f"operators.{name}" for name in ("blocks", "enqueue", "fairness", "set_aside", "queues", "receive"))
        ),
        "sensors": _modules("sensors"),
        "triggers": _modules("triggers"),
        "extra-links": ["airflow_mq.links.BlockLink", "airflow_mq.links.PlanLink"],
        "task-decorators": [
            {"name": "message_processor", "class-name": "airflow_mq.decorators.message_processor_task"}
        ],
        "notifications": [
            f"airflow_mq.notifications.{name}Notifier" for name in ("SetAside", "Starving", "Budget", "DayClosed")
        ],
        "queues": ["airflow_mq.queues.AirflowMqQueueProvider"],
        "asset-uris": [
            {
                "schemes": [SCHEME],
                "handler": "airflow_mq.assets.sanitize_uri",
                "factory": "airflow_mq.assets.queue_asset",
                "to_openlineage_converter": "airflow_mq.assets.convert_asset_to_openlineage",
            }
        ],
        # The plugin is an entry point of the group airflow.plugins; listed here as well, it would be loaded twice.
        "cli": ["airflow_mq.cli.airflow.get_cli_commands"],
        "config": {"airflow_mq": {"description": "The message queue.", "options": _options()}},
    }


def _modules(*names: str) -> list[dict[str, object]]:
    return [{"integration-name": HOOK_NAME, "python-modules": [f"airflow_mq.{name}" for name in names]}]


def _options() -> dict[str, dict[str, str | None]]:
    keys = ("type", "version_added", "default", "example", "description")
    return {name: dict(zip(keys, option)) for name, option in _OPTIONS.items()}
