"""Readers of what people write: arguments of commands, settings, processors, scenarios, and params of DAGs."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from airflow_mq.cli import arguments
from airflow_mq.cli.command import UsageError
from airflow_mq.codecs import json_codec
from airflow_mq.engine.queue.values import microseconds
from airflow_mq.engine.rules.characters import shown
from airflow_mq.engine.rules.config import RingConfig
from airflow_mq.engine.rules.errors import InvalidInput
from airflow_mq.engine.rules.message import Address
from airflow_mq.engine.rules.weight import Weight
from airflow_mq.processors import Processors
from airflow_mq.spark.arguments import Arguments

from ..draw import Draw
from ..target import LONGEST, Target, attempt

READERS: dict[str, Callable[[str], object]] = {
    "weight": arguments.weight,
    "when": arguments.when,
    "age": arguments.age,
    "message": arguments.message,
    "words": arguments.words,
    "header": arguments.header,
    "setting": arguments.setting,
    "seed": arguments.hexadecimal,
    "address": arguments.address,
    "count": arguments.count,
    "positive": arguments.positive,
}


def check_argument(data: bytes) -> None:
    """Read an argument of a command; what is read can be used, and printed again."""
    name = tuple(READERS)[data[0] % len(READERS)] if data else "weight"
    text = data[1:].decode("utf-8", "surrogateescape")
    found = attempt(lambda: READERS[name](text), ArgumentTypeError, UsageError)
    if isinstance(found, Weight):
        assert arguments.weight(str(found)) == found
    elif isinstance(found, datetime):
        microseconds(found)
    elif isinstance(found, timedelta):
        datetime.now(timezone.utc) + found
    elif isinstance(found, Address):
        assert arguments.address(str(found)) == found
    elif name == "setting":
        attempt(lambda: RingConfig().changed(**dict([found])), InvalidInput)  # type: ignore[list-item]


def check_settings(data: bytes) -> None:
    """Read the settings of a ring as JSON; they are stored and read as they are."""
    plain: object = attempt(lambda: _loads(data), ValueError)
    if not isinstance(plain, dict):
        return
    config = attempt(lambda: RingConfig.from_json(plain).check(), InvalidInput)
    stored = json.dumps(config.to_json())
    assert RingConfig.from_json(json.loads(stored)) == config
    assert isinstance(config.warnings(), list)


def _loads(data: bytes) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("no JSON") from None


def check_processors(data: bytes) -> None:
    """Read processors as JSON, route an origin, divide a block; or read the command line of a job."""
    if data[:2] == b"--":
        words = data.decode("utf-8", "surrogateescape").split(" ")
        read = attempt(lambda: Arguments.read(words), ValueError)
        assert all(isinstance(value, (str, list, int, float, type(None))) for value in vars(read).values())
        return
    found = attempt(lambda: Processors.from_json(data), InvalidInput)
    assert Processors.from_json(found.to_json()) == found
    parts = found.parts({"acme": 20_000, "acme/eu": 3, "\U0001f600": 1}, 100)
    routed = [
        origin for part in parts for origins in found.mine(part, ["acme", "acme/eu"]).values() for origin in origins
    ]
    assert sorted(routed) == [origin for origin in ("acme", "acme/eu") if found.route(origin)]


def check_preview(data: bytes) -> None:
    """Show the beginning of a payload in the page; decode it as JSON."""
    from airflow_mq.api.messages import preview

    shown = preview(data)
    shown.model_dump_json()
    assert (data.startswith(bytes.fromhex(shown.hex)) if shown.hex else not data) and shown.truncated == (
        shown.shown < len(data)
    )
    value = attempt(lambda: json_codec.decode(data), ValueError)
    assert json_codec.decode(attempt(lambda: json_codec.encode(value), ValueError)) == value


def check_params(data: bytes) -> None:
    """Read the params of a DAG's form, as templates render them; each fails the task with a reason, or is used."""
    from airflow.providers.common.compat.sdk import AirflowFailException

    from airflow_mq.operators.base import seconds_of, weight_of, whole_of
    from airflow_mq.operators.blocks.xcoms import checked_part
    from airflow_mq.operators.forms import refuse_unknown_params
    from airflow_mq.operators.queues import _until
    from airflow_mq.operators.set_aside import address_of
    from airflow_mq.processors import Processors

    draw = Draw(data)
    kind = draw.byte() % 8
    value: Any = draw.value() if draw.byte() % 2 else draw.rest().decode("utf-8", "surrogateescape")
    processors = Processors.from_json('{"processors":[{"name":"orders","function":"a:b","split":4}]}')
    context: Any = {"dag": _Named({"address": 1}), "dag_run": _Named(value if isinstance(value, Mapping) else {})}
    readers: tuple[Callable[[], object], ...] = (
        lambda: weight_of(value, "limit"),
        lambda: seconds_of(value, "older_than"),
        lambda: whole_of(value, "block", "the number of a block"),
        lambda: address_of(value),
        lambda: _until(value),
        lambda: checked_part(value, processors),
        lambda: Processors.from_json(shown(value, LONGEST)),
        lambda: refuse_unknown_params(context),
    )
    found = attempt(readers[kind], AirflowFailException, InvalidInput)
    assert kind != 0 or found is None or isinstance(found, Weight)
    assert kind != 3 or isinstance(found, Address)


class _Named:
    """A part of a context: a DAG with params, or a run with a conf."""

    def __init__(self, given: object) -> None:
        self.params = self.conf = given


ORDERS = b'{"processors":[{"name":"orders","function":"shop.orders:process","origins":["acme*","[a-c]?"],"split":4}'
TARGETS = (
    Target(
        "arguments", ("airflow_mq.cli.arguments", "airflow_mq.engine.rules.message", "airflow_mq.engine.rules.weight"),
        "ArgumentTypeError, UsageError", "a weight or an address prints as it reads; a time can be used", check_argument,
        (
            b"\0600,000/1_073", b"\x0190s", b"\x012026-12-24T18:00:00Z", b"\x011.5h", b"\2999d", b"\3acme:1:2:high", b"\0030aff",
            b"\4text", b"\5a=b", b"\6order=rotation", b"\6service_weight=[1,2]", b"\6costs={}", b"\7ff", b"\x08a:1:2", b"\x0917",
            b"\x0a0", b"\x010001-01-01T00:00:00+23:59", b"\6max_origins=none",
        ),
    ),
    Target(
        "settings", ("airflow_mq.engine.rules.config", "airflow_mq.engine.rules.weight"),
        "ConfigRefused, InvalidInput", "settings are stored and read as they are", check_settings,
        (
            json.dumps(RingConfig().to_json()).encode(), b'{"costs":{"reap_page":[1,2]},"weigher":{"base":[1,2]}}',
            b'{"service_weight":null,"paths":true,"max_origins":5}', b'{"blob_path":"s3://a/b","earlier_blob_paths":["/a"]}',
        ),
    ),
    Target(
        "processors", ("airflow_mq.processors", "airflow_mq.spark.arguments"), "InvalidInput; a command line: ValueError",
        "processors are written and read as they are; each origin is in one part", check_processors,
        (
            ORDERS + b',{"name":"mail","function":"m:f","where":"in place","codec":"m:C"}],"unrouted":"pause"}',
            ORDERS + b',{"name":"t","function":"a:b","shape":"arrow","spark":{"conf":{"a":1}}}]}', b"[]", b'{"processors":[]}',
            b"--routes {} --processors a,b --part=1 --parts 2 --lease 9.5", b"--ring",
        ),
    ),
    Target(
        "preview", ("airflow_mq.api.messages", "airflow_mq.codecs"), "none; the codec: ValueError",
        "a preview begins the payload; a value encodes and decodes to itself", check_preview,
        (b'{"order": 1}', b"\xff\xfe", b"[1e999]", b'"\\ud800"', b"NaN", b"[" * 70 + b"]" * 70),
        needs_airflow=True,
    ),
    Target(
        "dag-params",
        (
            "airflow_mq.operators.base", "airflow_mq.operators.queues", "airflow_mq.operators.set_aside",
            "airflow_mq.operators.forms", "airflow_mq.operators.blocks.xcoms", "airflow_mq.processors",
            "airflow_mq.engine.rules.message", "airflow_mq.engine.rules.weight",
        ),
        "AirflowFailException, InvalidInput", "a param is used, or fails the task with a short reason", check_params,
        (
            b"\0\0[600000, 1073741824]", b"\1\x000.5", b"\2\x0017", b"\3\0acme:1:2", b"\4\x002026-12-24T18:00:00Z", b"\4\x0090",
            b"\6\0" + ORDERS + b"]}", b"\7\1\7\2\1a\3\1\1\1b\3\1\1", b"\5\1\7\1\4part\3\1\0", b"\2\0nan", b"\1\0inf",
        ),
        needs_airflow=True,
    ),
)  # fmt: skip
