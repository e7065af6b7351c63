"""Scheme `airflow-mq` of Airflow's `MessageQueueTrigger`. ::

    trigger = MessageQueueTrigger(scheme="airflow-mq", mq_conn_id="airflow_mq_default", ring="orders")
    asset = Asset("orders-ready", watchers=[AssetWatcher(name="orders", trigger=trigger)])

Requires `apache-airflow-providers-common-messaging`. Without it, use `QueueReadyTrigger`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import AirflowOptionalProviderFeatureException

from airflow_mq.provider import SCHEME

try:
    from airflow.providers.common.messaging.providers.base_provider import BaseMessageQueueProvider
except ImportError as error:
    raise AirflowOptionalProviderFeatureException(error) from None

if TYPE_CHECKING:
    from airflow_mq.triggers import QueueReadyTrigger


class AirflowMqQueueProvider(BaseMessageQueueProvider):
    """Provider that maps the scheme to `QueueReadyTrigger`."""

    scheme = SCHEME

    def trigger_class(self) -> type[QueueReadyTrigger]:
        from airflow_mq.triggers import QueueReadyTrigger

        return QueueReadyTrigger
