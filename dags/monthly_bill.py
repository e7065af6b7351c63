"""## Monthly bills

On the first day of a month, the run writes what each tenant was charged in the month before as one CSV file. A tenant
is the first part of an origin. A run that is repeated writes the same file again.
"""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

from airflow.sdk import DAG, get_current_context, task

from airflow_mq import Tariff
from airflow_mq.hooks import MessageQueueHook
from airflow_mq.sheets import line

FOLDER = "/var/lib/airflow-mq/bills"
#: Prices of an hour and of 1 GiB, from a day on. An earlier price stays in the list: it still counts for its days.
TARIFF = {"currency": "EUR", "prices": [{"from": "2026-01-01", "time": "0.12", "size": "0.02"}]}
COLUMNS = ("tenant", "messages", "attempts", "charged_ms", "charged_bytes", "cost", "currency")

with DAG("monthly_bill", schedule="0 6 1 * *", catchup=False, doc_md=__doc__, tags=["airflow_mq"]):

    @task
    def bill() -> str:
        """Write the bills of the month before, and return the path of the file."""
        until: date = get_current_context()["dag_run"].run_after.date().replace(day=1)
        since = (until - timedelta(days=1)).replace(day=1)
        with MessageQueueHook().queue() as queue:
            found = queue.inspect.usage("path", "month", since=since, until=until, tariff=Tariff.from_json(TARIFF))
        rows = [
            (one.name, one.messages, one.attempts, one.charged.time, one.charged.size, one.cost, one.currency)
            for one in found
        ]
        file = Path(FOLDER) / f"{since:%Y-%m}.csv"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(map(line, [COLUMNS, *rows])), "utf-8")
        return str(file)

    bill()
