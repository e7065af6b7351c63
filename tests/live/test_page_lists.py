"""The page over thousands of queues: turned, sorted and searched in a real browser."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Route, expect

from airflow_mq import Address, Weight, Yield
from tests.live.conftest import World
from tests.live.looking import Seen, assert_accessible, picture

RING = "page-many"
TENANTS, SOURCES = 60, 50
LOUD = {"tenant-07/source-42": 300, "tenant-31/source-05": 200, "tenant-59/source-49": 100}

#: Messages that no block can carry.
HEAVY = 60


@pytest.fixture(scope="module")
def world(worlds: dict[str, World]) -> World:
    """Three thousand queues, of which three are loud; a block has met them."""
    world = worlds["sqlite"]
    world.make_ring(RING, service_weight=Weight(50, 50_000))
    origins = [f"tenant-{tenant:02}/source-{source:02}" for tenant in range(TENANTS) for source in range(SOURCES)]
    with world.queue(RING) as queue:
        queue.enqueue_messages((origin, b"{}") for origin in origins for _ in range(LOUD.get(origin, 1)))
        queue.blocks.release(queue.blocks.plan())
    return world


def names(shown: Locator) -> list[str]:
    return shown.get_by_role("table", name="Queues").get_by_role("rowheader").all_text_contents()


def page_number(shown: Locator) -> Locator:
    return shown.get_by_role("navigation", name="Pages of queues").get_by_role("status")


def test_thousands_are_turned_by_name_and_each_is_listed_once(seen: Seen) -> None:
    shown = seen.open("queues", RING, sort="origin")
    found: list[str] = []
    for number in range(1, 5):
        expect(page_number(shown)).to_have_text(f"Page {number}")
        expect(shown.locator("[aria-busy=true]")).to_have_count(0)
        found += names(shown)
        # By keyboard, and the button stays where the hand is.
        shown.get_by_role("button", name="Next →").press("Enter")
    assert found == [f"tenant-{n // SOURCES:02}/source-{n % SOURCES:02}" for n in range(200)]
    for number in (5, 4, 3):
        expect(page_number(shown)).to_have_text(f"Page {number}")
        expect(shown.locator("[aria-busy=true]")).to_have_count(0)
        seen.page.keyboard.press("Shift+Tab") if number == 5 else None
        seen.page.keyboard.press("Enter")
    expect(page_number(shown)).to_have_text("Page 2")
    assert shown.get_by_role("button", name="← Previous").evaluate("one => one === document.activeElement")


def test_the_loudest_are_first_and_the_figures_are_of_all(seen: Seen) -> None:
    shown = seen.open("queues", RING, sort="messages")
    table = shown.get_by_role("table", name="Queues")
    # All are counted only then, and the order is that of what is counted.
    expect(page_number(shown)).to_have_text("Page 1 · 3,000 in all")
    expect(table.get_by_role("rowheader").first).to_have_text("tenant-07/source-42")
    assert names(shown)[:3] == sorted(LOUD, key=lambda origin: -LOUD[origin])
    depths = [depth.split()[0] for depth in table.locator("td[data-name=Messages] > span").all_text_contents()]
    assert depths[:4] == ["300", "200", "100", "1"]
    assert_accessible(seen.page, "many queues")
    expect(shown.get_by_text("of 3,000 queues wait")).to_be_visible()
    expect(shown.get_by_text(re.compile(r"The grey arc is 2,94\d more queues\."))).to_be_visible()
    assert shown.locator("svg.ring a.arc").count() == 61


def set_aside_in(world: World, ring: str) -> None:
    """Make a ring whose messages are all set aside."""
    world.make_ring(ring, service_weight=Weight(50, 50_000))
    with world.queue(ring) as queue:
        queue.enqueue_messages("archive", [b"{}"] * HEAVY, weight=Weight(500, 10))
        queue.blocks.settle(queue.blocks.plan())


def test_all_that_is_set_aside_is_judged_though_not_all_is_shown(seen: Seen, world: World) -> None:
    set_aside_in(world, "page-heavy")
    shown = seen.open("set-aside", "page-heavy")
    pages = shown.get_by_role("navigation", name="Pages of set-aside messages").get_by_role("status")
    expect(pages).to_have_text("Page 1 · 60 in all")
    # A choice by reason is a part of the list: the count and the requeue are of this part.
    shown.get_by_label("Reason").select_option("attempts")
    expect(shown.get_by_role("heading", name="No message is set aside for this reason")).to_be_visible()
    shown.get_by_label("Reason").select_option("overweight")
    expect(pages).to_have_text("Page 1 · 60 in all")
    shown.get_by_role("button", name="Requeue all 60").click()
    with seen.page.expect_request("**/set-aside/requeue") as asked:
        seen.confirm("Requeue", reason="which of them fit?")
    assert asked.value.post_data_json == {"reason": "overweight", "why": "which of them fit?"}
    expect(shown.get_by_text(re.compile(r"0 messages requeued\. 60 were not: it weighs "))).to_be_visible()
    shown.get_by_label("Reason").select_option("")
    expect(pages).to_have_text("Page 1 · 60 in all")
    shown.get_by_role("checkbox", name="All on this page").check()
    expect(shown.get_by_text("50 chosen")).to_be_visible()
    shown.get_by_role("button", name="Next →").click()
    expect(shown.get_by_role("rowheader")).to_have_count(10)
    expect(shown.get_by_text("0 chosen")).to_be_visible()
    with world.queue("page-heavy") as queue:
        queue.admin.change_ring(service_weight=Weight(1_000, 50_000))
    shown.get_by_role("button", name="Requeue all 60").click()
    seen.confirm("Requeue", reason="blocks are larger now")
    expect(shown.get_by_text(f"{HEAVY} messages requeued.")).to_be_visible()
    expect(shown.get_by_role("button", name="Requeue all 60")).to_have_count(0)
    with world.queue("page-heavy") as queue:
        assert queue.set_aside.list() == []


def test_a_message_that_another_tab_discarded_is_not_discarded_again(seen: Seen, world: World) -> None:
    set_aside_in(world, "page-tabs")
    shown = seen.open("set-aside", "page-tabs")
    shown.get_by_role("button", name="Discard archive:0:0").click()
    with world.queue("page-tabs") as queue:
        queue.set_aside.discard([Address("archive", 0, 0)], "in the other tab")
    seen.confirm("Discard permanently", reason="in this tab")
    announced = shown.locator(".notice", has_text=re.compile(r"^0 messages discarded\. 1 was not: "))
    expect(announced).to_have_class(re.compile(r"\bwarn\b"))


def test_figures_of_a_part_of_the_queues_are_lower_bounds(seen: Seen) -> None:
    def uncounted(route: Route) -> None:
        route.fulfill(json={**route.fetch().json(), "exact": False})

    seen.page.route("**/overview", uncounted)
    shown = seen.open("queues", RING)
    expect(shown.get_by_text("≥ 3,000 of ≥ 3,000 queues wait")).to_be_visible()
    expect(shown.get_by_role("group", name=re.compile("^The ready ring: ≥ 3,000 queues with ≥ "))).to_be_visible()


def test_a_session_that_ended_leads_to_the_sign_in(seen: Seen, world: World) -> None:
    set_aside_in(world, "page-ended")
    shown = seen.open("set-aside", "page-ended")
    discard = shown.get_by_role("button", name="Discard archive:0:0")
    expect(discard).to_be_visible()
    seen.page.route("**/set-aside*", lambda route: route.fulfill(status=401, json={"detail": "Not authenticated"}))
    seen.page.route("**/discard", lambda route: route.fulfill(status=401, json={"detail": "Not authenticated"}))
    stale = shown.locator(".stale", has_text="your session has expired.")
    expect(stale.get_by_role("link", name="Sign in")).to_be_visible()
    discard.click()
    dialog = seen.page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("it is empty")
    dialog.get_by_role("button", name="Discard permanently").click()
    expect(dialog.get_by_role("alert").get_by_role("link", name="Sign in")).to_be_visible()
    seen.wrong.clear()  # the browser itself logged the refusals


def test_all_that_one_error_set_aside_is_requeued(seen: Seen, world: World) -> None:
    world.make_ring("page-failed", service_weight=Weight(50, 50_000), max_attempts=1)
    with world.queue("page-failed") as queue:
        queue.enqueue_messages((f"shop-{number}", b"{}") for number in range(7))
        queue.service_queues(lambda delivery: Yield("KeyError" if delivery.origin != "shop-3" else "TimeoutError"))
    shown = seen.open("set-aside", "page-failed")
    requeue = shown.get_by_role("button", name="Requeue all with this error…: KeyError")
    expect(requeue).to_have_count(6)
    assert_accessible(seen.page, "set aside by an error")
    # A count that does not come bars the button, and the dialog names the problem.
    seen.page.route("**/set-aside?error=*", lambda route: route.fulfill(status=503, json={"detail": "too slow"}))
    requeue.first.click()
    dialog = seen.page.get_by_role("dialog", name="Requeue all with this error")
    expect(dialog.get_by_role("alert")).to_have_text("too slow")
    expect(dialog.get_by_role("button", name="Requeue messages")).to_have_attribute("aria-disabled", "true")
    seen.page.unroute("**/set-aside?error=*")
    seen.page.keyboard.press("Escape")
    requeue.first.click()
    expect(dialog.get_by_text("Error: KeyError")).to_be_visible()
    expect(dialog.get_by_text(re.compile("^6 messages are set aside with this error"))).to_be_visible()
    assert_accessible(seen.page, "requeue all with this error")
    picture(seen.page, "requeue-error")
    seen.confirm("Requeue 6 messages", reason="the processor is fixed")
    expect(shown.get_by_text("6 messages requeued.")).to_be_visible()
    expect(requeue).to_have_count(0)
    expect(shown.get_by_role("button", name="Requeue all with this error…: TimeoutError")).to_be_visible()
    with world.queue("page-failed") as queue:
        assert [one.error for one in queue.set_aside.list(errors=True)] == ["TimeoutError"]
        # The list still shows the message until it is refreshed; the dialog does not.
        seen.page.route("**/set-aside?limit=*", lambda route: route.abort())
        queue.set_aside.requeue_all("meanwhile", error="TimeoutError")
    shown.get_by_role("button", name="Requeue all with this error…: TimeoutError").click()
    expect(dialog.get_by_text("No message is set aside with this error now.")).to_be_visible()
    expect(dialog.get_by_role("button", name="Requeue 0 messages")).to_have_attribute("aria-disabled", "true")
    seen.wrong.clear()  # the browser itself reports the requests that failed


def test_a_list_that_is_being_read_is_read_again_after_an_action(seen: Seen, world: World) -> None:
    world.make_ring("page-overtaken", service_weight=Weight(50, 50_000), max_attempts=1)
    with world.queue("page-overtaken") as queue:
        queue.enqueue_message("shop", b"{}")
        queue.service_queues(lambda delivery: Yield("KeyError"))
    shown = seen.open("set-aside", "page-overtaken")
    requeue = shown.get_by_role("button", name="Requeue all with this error…: KeyError")
    expect(requeue).to_be_visible()
    # The list is read, and its response comes after the action.
    held = hold_first(seen, "**/set-aside?limit=*")
    before = held().fetch()
    # From now on, the page reads nothing by the clock.
    seen.page.evaluate("window.setTimeout = () => 0")
    requeue.click()
    seen.confirm("Requeue 1 message", reason="the processor is fixed")
    expect(shown.get_by_text("1 message requeued.")).to_be_visible()
    held().fulfill(response=before)
    expect(requeue).to_have_count(0)


def test_no_view_shows_an_invisible_character(seen: Seen, world: World) -> None:
    origin, escaped = "ac\u202eme\u3164", r"ac\u202eme\u3164"
    world.make_ring("page-hidden", service_weight=Weight(50, 50_000), invisible_origins=True)
    with world.queue("page-hidden") as queue:
        queue.enqueue_messages(origin, [b"{}"] * 3, weight=Weight(5, 10))
        queue.enqueue_message(f"{origin}/heavy", b"{}", weight=Weight(500, 10))
        block = queue.blocks.plan()
        queue.blocks.report(block, [batch.answer() for batch in block.batches()])
        queue.blocks.settle(block)
        queue.enqueue_messages(origin, [b"{}"] * 3)
        queue.admin.pause(f"{origin}/quiet", "later")
    for view in ("queues", "blocks", "next", "set-aside", "fairness", "usage", "events"):
        shown = seen.open(view, "page-hidden", paused="shown", **({"block": str(block.id)} if view == "blocks" else {}))
        expect(shown.get_by_text(escaped).filter(visible=True).first).to_be_visible()
        assert not {"\u202e", "\u3164"} & set(shown.inner_text() + "".join(labels(shown))), view
        picture(seen.page, "hidden", view)
    shown = seen.open("queues", "page-hidden")
    shown.get_by_role("link", name=escaped, exact=True).click()
    expect(shown.get_by_role("heading", name=escaped)).to_be_visible()
    shown.get_by_role("button", name="Pause").click()
    seen.confirm("Pause", reason="it looks like another")
    expect(shown.get_by_text(f"{escaped} is paused. Messages are still accepted.")).to_be_visible()
    assert not {"\u202e", "\u3164"} & set(shown.inner_text() + "".join(labels(shown)))
    with world.queue("page-hidden") as queue:
        assert origin in {one.origin for one in queue.admin.paused()}


def labels(shown: Locator) -> list[str]:
    """Return what the page reads out or shows at the pointer."""
    found: list[str] = shown.locator("[aria-label], [title], title").evaluate_all(
        "all => all.map(one => `${one.getAttribute('aria-label')} ${one.getAttribute('title')} ${one.textContent}`)"
    )
    return found


def test_a_new_filter_is_not_answered_by_old_rows(seen: Seen, world: World) -> None:
    set_aside_in(world, "page-filtered")
    shown = seen.open("set-aside", "page-filtered")
    everything = shown.get_by_role("button", name="Requeue all 60")
    expect(everything).to_be_visible()
    held = hold_first(seen, "**/set-aside?*reason=attempts*")
    shown.get_by_label("Reason").select_option("attempts")
    expect(everything).to_have_count(0)
    expect(shown.get_by_role("heading", name="No message is set aside")).to_have_count(0)
    held().continue_()
    expect(shown.get_by_role("heading", name="No message is set aside for this reason")).to_be_visible()
    # Nor is an empty answer that of the next search.
    shown = seen.open("queues", RING, search="no-such")
    expect(shown.get_by_role("heading", name="No origin contains “no-such”")).to_be_visible()
    held = hold_first(seen, "**/queues?*search=tenant-0*")
    shown.get_by_label("Search queues by their origin").fill("tenant-0")
    held()
    expect(shown.get_by_role("heading", name="No origin contains")).to_have_count(0)
    held().continue_()
    expect(shown.get_by_role("table", name="Queues")).to_be_visible()
    # A sorted table stays, and with it the focus.
    held = hold_first(seen, "**/queues?*sort=origin*")
    sort = shown.get_by_role("columnheader", name="Queue").get_by_role("button")
    sort.press("Enter")
    held()
    expect(sort).to_be_focused()
    held().continue_()
    expect(shown.locator("[aria-busy=true]")).to_have_count(0)
    expect(sort).to_be_focused()
    for name, order in {"Queue": "ascending", "Messages": "descending"}.items():
        header = shown.get_by_role("columnheader", name=name)
        header.get_by_role("button").press("Enter")
        expect(header).to_have_attribute("aria-sort", order)


def hold_first(seen: Seen, pattern: str) -> Callable[[], Route]:
    """Hold the first request of a pattern; return a function that waits for it and returns it."""
    held: list[Route] = []
    seen.page.route(pattern, lambda route: route.continue_() if held else held.append(route))

    def wait() -> Route:
        while not held:
            seen.page.wait_for_timeout(50)
        return held[0]

    return wait


def test_another_filter_begins_at_the_first_page(seen: Seen) -> None:
    weight = {"time": 1, "size": 1}
    nothing = {"period": "2026-11-28", "messages": 1, "size": 1, "attempts": 1, "set_aside": 0, "measured": 0}
    rows = [{**nothing, "name": f"name-{n:02}", "planned": weight, "charged": weight} for n in range(60)]
    told = {"rows": rows, "total": 60, "messages": 60, "charged": weight}
    seen.page.route("**/usage?*", lambda route: route.fulfill(json=told))
    shown = seen.open("usage", RING)
    pages = shown.get_by_role("navigation", name="Pages of usage").get_by_role("status")
    expect(pages).to_have_text("Page 1 · 60 in all")
    for number in (2, 3):
        shown.get_by_role("button", name="Next →").click()
        expect(pages).to_have_text(f"Page {number} · 60 in all")
    held = hold_first(seen, "**/usage?*by=processor*")
    shown.get_by_label("Sum by").select_option("processor")
    # Names of origins are no names of processors.
    held()
    expect(shown.get_by_role("table", name="Usage")).to_have_count(0)
    held().fulfill(json={**told, "rows": rows[:30], "total": 30})
    expect(pages).to_have_text("Page 1 · 30 in all")
    expect(shown.get_by_role("columnheader").first).to_have_text("Processor")


def test_a_last_page_that_became_empty_promises_no_next_one(seen: Seen) -> None:
    seen.page.route("**/queues?*after=*", lambda route: route.fulfill(json={"rows": [], "next": None, "total": None}))
    shown = seen.open("queues", RING)
    shown.get_by_role("button", name="Next →").click()
    expect(shown.get_by_text("No more here.")).to_be_visible()
    expect(shown.get_by_text("the next page may have some")).to_have_count(0)


def test_a_search_finds_few_among_thousands_and_is_in_the_address(seen: Seen) -> None:
    shown = seen.open("queues", RING)
    expect(page_number(shown)).to_be_visible()
    shown.get_by_role("button", name="Next →").click()
    expect(page_number(shown)).to_have_text(re.compile("^Page 2"))
    search = shown.get_by_label("Search queues by their origin")
    search.press_sequentially("SOURCE-42", delay=5)
    expect(page_number(shown)).to_have_text("Page 1 · 60 in all")
    assert all(name.endswith("source-42") for name in names(shown))
    search.press_sequentially("x")
    expect(shown.get_by_role("heading", name="No origin contains “SOURCE-42x”")).to_be_visible()
    search.press("Backspace")
    shown.get_by_role("button", name="Next →").click()
    expect(page_number(shown)).to_have_text("Page 2 · 60 in all")
    expect(shown.get_by_role("table", name="Queues").get_by_role("rowheader")).to_have_count(10)
    seen.page.reload()
    expect(shown.get_by_label("Search queues by their origin")).to_have_value("SOURCE-42")
    expect(page_number(shown)).to_have_text("Page 1 · 60 in all")
    shown.get_by_role("link", name="tenant-07/source-42").click()
    expect(shown.get_by_role("heading", name="tenant-07/source-42")).to_be_visible()
    seen.page.go_back()
    expect(shown.get_by_label("Search queues by their origin")).to_have_value("SOURCE-42")
