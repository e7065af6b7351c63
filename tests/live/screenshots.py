"""Screenshots of the page for the documentation; `make screenshots` runs this file, and `make test` does not."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from airflow_mq import Message, MessageQueue, Weight, Yield
from tests.live.conftest import World
from tests.live.looking import assert_accessible, picture, signed_in
from tests.live.test_page import VIEWS, add_job

RING = "orders"
LIMIT = Weight(60_000, 4_000_000)
#: Orders that each shop sends before the pictures are taken.
SHOPS = {
    "aurora-fashion": 1_450,
    "baltic-books": 620,
    "cedar-home": 480,
    "delta-sports": 410,
    "elm-pharmacy/prescriptions": 330,
    "fjord-outdoor": 290,
    "grove-grocery": 260,
    "harbour-electronics": 240,
    "iris-optics": 190,
    "juniper-toys": 170,
    "kestrel-bikes": 150,
    "lagoon-travel": 130,
}
#: Scheme and width of each view in the documentation.
PICTURES: dict[tuple[str, int], list[str]] = {
    ("light", 1280): ["queues", "next", "set-aside", "fairness", "usage"],
    ("dark", 1280): ["blocks"],
    ("dark", 400): ["queues"],
    ("light", 400): [],
}


@pytest.fixture(scope="module")
def world(worlds: dict[str, World]) -> World:
    """A ring of shops in the middle of a day."""
    world = worlds["sqlite"]
    world.make_ring(RING, service_weight=LIMIT, high=True, ordered=False, heap_size=20_000, max_attempts=1)
    chance = random.Random(12)
    with MessageQueue(world.store, RING, actor="mara") as queue:
        queue.enqueue_messages("cedar-home", _orders(chance, 4))
        queue.service_queues(lambda delivery: Yield("KeyError: 'customer_id'"))
        queue.admin.change_ring(max_attempts=5)
        for shop, count in SHOPS.items():
            queue.enqueue_messages(shop, _orders(chance, count))
        for shop, seconds in (("aurora-fashion/catalogue", 412), ("elm-pharmacy/stock", 187), ("fjord-outdoor", 96)):
            queue.enqueue_message(shop, _order(chance, 0), weight=Weight(seconds * 1_000, seconds * 24_000))
        for _ in range(9):
            _settle_block(queue)
    assert world.run_block("in_place", RING) == "success"
    with MessageQueue(world.store, RING, actor="mara") as queue:
        queue.admin.pause("harbour-electronics", "their webhook returns 503, see INC-2041")
        queue.enqueue_messages("grove-grocery", _orders(chance, 5), priority="high")
        queue.blocks.plan(limit=Weight(20_000, 1_500_000), lease=86_400)
    return world


def _orders(chance: random.Random, count: int) -> list[Message]:
    return [Message(_order(chance, number), weight=_weight(chance)) for number in range(count)]


def _order(chance: random.Random, number: int) -> bytes:
    order = {"order": 48_000 + chance.randrange(9_000), "items": chance.randrange(1, 9)}
    return json.dumps({**order, "ring": RING, "number": number, "seconds": 0}).encode()


def _weight(chance: random.Random) -> Weight:
    return Weight(chance.randrange(60, 400), chance.randrange(4_000, 40_000))


def _settle_block(queue: MessageQueue) -> None:
    block = queue.blocks.plan()
    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    queue.blocks.settle(block)


@pytest.mark.parametrize(("scheme", "width"), PICTURES)
def test_views(chromium: Browser, world: World, scheme: Any, width: int) -> None:
    with signed_in(chromium, world, color_scheme=scheme, reduced_motion="reduce") as seen:
        seen.page.set_viewport_size({"width": width, "height": 900})
        seen.page.add_init_script(f"localStorage.setItem('theme', {scheme!r})")
        for view, title in VIEWS.items():
            shown = seen.open(view, RING)
            expect(shown.get_by_role("heading", name=title, exact=True)).to_be_visible()
            expect(shown.get_by_text(re.compile("Loading…|Planning…"))).to_have_count(0)
            assert shown.evaluate("page => page.scrollWidth <= page.clientWidth"), f"{view} is wider than its place"
            seen.page.wait_for_load_state("networkidle")
            assert_accessible(seen.page, f"{view}, {scheme}, {width}")
            folder = "" if view in PICTURES[scheme, width] else "others/"
            picture(seen.page, f"{folder}page", view, scheme, width)


def test_block(chromium: Browser, world: World) -> None:
    (run,) = [run["dag_run_id"] for run in world.airflow.runs("in_place") if run["conf"].get("ring") == RING]
    add_job(world, run, "process", 0, "local-1795305600000", "http://spark.example:4040")
    with signed_in(chromium, world, color_scheme="light", reduced_motion="reduce") as seen:
        seen.page.add_init_script("localStorage.setItem('theme', 'light')")
        shown = seen.open("blocks", RING)
        shown.locator("tr", has=seen.page.get_by_role("link", name="in_place")).get_by_role("button").first.click()
        card = shown.get_by_role("region", name=re.compile("^Block "))
        expect(card.get_by_role("link", name="local-1795305600000")).to_be_visible()
        seen.page.wait_for_load_state("networkidle")
        picture(seen.page, "page-block-light-1280")
