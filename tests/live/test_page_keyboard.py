"""The page without a mouse: where Tab leads, how the ring is walked, and what a dialog does with the keyboard."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, Route, expect

from airflow_mq import Weight
from tests.live.conftest import World
from tests.live.looking import Seen

RING = "page-keys"
QUEUES = {"acme": 40, "birch": 20, "cobalt": 10}
#: The focused element, as a screen reader announces it.
AT = """() => {
    const one = document.activeElement;
    if (!one || one === document.body) return "nothing";
    const label = one.getAttribute("aria-label") || one.labels?.[0]?.innerText || one.innerText;
    return label.trim().split("\\n")[0];
}"""
INSIDE = "() => document.activeElement === document.body || document.activeElement.closest('dialog') !== null"


@pytest.fixture(scope="module")
def world(worlds: dict[str, World]) -> World:
    """Three queues, and two messages set aside."""
    world = worlds["sqlite"]
    world.make_ring(RING, service_weight=Weight(1_000, 100_000))
    with world.queue(RING) as queue:
        for n in range(2):
            queue.enqueue_message(f"heavy-{n}", b"{}", weight=Weight(5_000, 10))
        queue.blocks.settle(queue.blocks.plan())
        for origin, many in QUEUES.items():
            queue.enqueue_messages(origin, [b"{}"] * many)
    return world


def tab(page: Page, times: int = 1, key: str = "Tab") -> list[str]:
    """Where so many steps lead."""
    found = []
    for _ in range(times):
        page.keyboard.press(key)
        found.append(str(page.evaluate(AT)))
    return found


def test_tab_leads_through_the_page_from_the_top_down(seen: Seen) -> None:
    shown = seen.open("queues", RING, sort="origin")
    expect(shown.get_by_role("heading", name="The ready ring")).to_be_visible()
    expect(shown.get_by_role("table", name="Queues")).to_be_visible()
    # There is one connection, and so no choice of it.
    shown.get_by_role("combobox", name="Ring").focus()
    views = ["Queues", "Blocks", "Next blocks", "Set aside", "Fairness", "Usage", "Events", "Check"]
    assert tab(seen.page, len(views)) == views
    assert tab(seen.page, 2) == ["Block 1 settled", "2 set aside for a decision"]
    assert tab(seen.page, 3) == ["Search queues by their origin", "Sort by", "CSV"]
    assert tab(seen.page, 3) == ["Queue", "Waited", "Messages"]
    assert tab(seen.page, 7) == ["acme", "birch", "cobalt", "heavy-0", "1", "heavy-1", "1"]
    # The ring is one stop, however many arcs it has.
    assert tab(seen.page)[0].startswith("acme: 40 messages")
    # Enter works where a click does.
    shown.get_by_role("table", name="Queues").get_by_role("link", name="cobalt").focus()
    seen.page.keyboard.press("Enter")
    expect(shown.get_by_role("heading", name="cobalt", exact=True)).to_be_visible()


def test_the_focus_stays_in_the_view_when_its_element_is_gone(seen: Seen) -> None:
    shown = seen.open("queues", RING)
    blocks = shown.get_by_role("link", name="Blocks", exact=True)
    blocks.press("Enter")
    expect(shown.get_by_role("heading", name="Blocks over time")).to_be_visible()
    expect(blocks).to_be_focused()
    shown.get_by_role("link", name="Queues", exact=True).press("Enter")
    shown.get_by_role("table", name="Queues").get_by_role("link", name="acme").press("Enter")
    expect(shown.get_by_role("group", name="acme", exact=True)).to_be_focused()
    assert tab(seen.page) == ["← All queues"]
    seen.page.go_back()
    expect(shown.get_by_role("group", name="Queues", exact=True)).to_be_focused()
    shown = seen.open("queues", RING, paused="1")
    shown.get_by_role("region", name="Paused origins").get_by_role("button", name="Close").press("Enter")
    expect(shown.get_by_role("group", name="Queues", exact=True)).to_be_focused()


def test_a_click_with_control_opens_another_tab(seen: Seen) -> None:
    shown = seen.open("queues", RING)
    here = seen.page.url
    with seen.page.context.expect_page() as opened:
        shown.get_by_role("table", name="Queues").get_by_role("link", name="acme").click(modifiers=["Control"])
    assert "origin=acme" in opened.value.url and seen.page.url == here
    opened.value.close()


def test_arrows_go_around_the_ring(seen: Seen) -> None:
    shown = seen.open("queues", RING)
    shown.locator("svg.ring a.arc").first.focus()
    middle = shown.locator("svg.ring .middle")
    expect(middle).to_contain_text("acme")
    assert [one.partition(":")[0] for one in tab(seen.page, 2, "ArrowRight")] == ["birch", "cobalt"]
    expect(middle).to_contain_text("cobalt")
    assert tab(seen.page, 1, "Home")[0].startswith("acme:")
    last = tab(seen.page, 1, "ArrowLeft")[0]
    assert last == tab(seen.page, 1, "End")[0] and last.startswith("cobalt:")
    # A person who leaves and comes back is at the same place.
    tab(seen.page)
    assert tab(seen.page, 1, "Shift+Tab") == [last]
    tab(seen.page, 1, "ArrowLeft")
    seen.page.keyboard.press("Enter")
    expect(shown.get_by_role("heading", name="birch", exact=True)).to_be_visible()


def test_blocks_are_picked_from_their_bars_and_messages_looked_at(seen: Seen, world: World) -> None:
    with world.queue(RING) as queue:
        blocks = [queue.blocks.plan() for _ in range(2)]
        for block in blocks:
            queue.blocks.release(block)
    shown = seen.open("blocks", RING)
    bars = shown.locator("svg.bars .bar")
    # All bars are one stop: the latest, until another one is walked to.
    bars.last.focus()
    assert bars.locator("xpath=self::*[@tabindex='0']").count() == 1
    assert tab(seen.page, 1, "ArrowLeft")[0].startswith(f"Block {blocks[0].id}: ")
    assert tab(seen.page, 1, "End")[0].startswith(f"Block {blocks[1].id}: ")
    assert tab(seen.page, 1, "ArrowLeft")[0].startswith(f"Block {blocks[0].id}: ")
    seen.page.keyboard.press("Enter")
    expect(shown.get_by_role("region", name=f"Block {blocks[0].id}")).to_be_visible()
    expect(bars.nth(-2)).to_have_attribute("aria-pressed", "true")
    shown = seen.open("queue", RING, origin="acme", priority="regular")
    look = shown.get_by_role("button", name="Read").first
    look.press("Enter")
    card = shown.locator("section.card:focus")
    expect(card.get_by_text("acme:0:0")).to_be_visible()
    card.get_by_role("button", name="Close").press("Enter")
    expect(look).to_be_focused()


def test_a_dialog_holds_the_keyboard_and_gives_it_back(seen: Seen, world: World) -> None:
    shown = seen.open("queue", RING, origin="birch", priority="regular")
    pause = shown.get_by_role("button", name="Pause")
    for way in ("Escape", "Cancel"):
        pause.focus()
        seen.page.keyboard.press("Enter")
        dialog = seen.page.get_by_role("dialog", name="Pause birch")
        expect(dialog).to_be_visible()
        expect(dialog.get_by_label("Reason")).to_be_focused()
        for key in ["Tab"] * 8 + ["Shift+Tab"] * 8:
            seen.page.keyboard.press(key)
            assert seen.page.evaluate(INSIDE), f"{key} leads out of the dialog"
        if way == "Escape":
            seen.page.keyboard.press("Escape")
        else:
            dialog.get_by_role("button", name="Cancel").press("Enter")
        expect(dialog).to_have_count(0)
        expect(pause).to_be_focused()
    # The required field is named, and nothing is done without it.
    seen.page.keyboard.press("Enter")
    expect(dialog.get_by_label("Reason")).to_be_focused()
    seen.page.keyboard.press("Enter")
    expect(dialog.get_by_label("Reason")).to_be_focused()
    seen.page.keyboard.type("by keyboard alone")
    seen.page.keyboard.press("Enter")
    expect(dialog).to_have_count(0)
    expect(shown.get_by_text("by keyboard alone").first).to_be_visible()
    expect(shown.get_by_role("button", name="Resume", exact=True)).to_be_focused()
    with world.queue(RING) as queue:
        assert [one.reason for one in queue.admin.paused()] == ["by keyboard alone"]
        queue.admin.resume("birch")


def test_a_dialog_stays_until_it_shows_what_went_wrong(seen: Seen) -> None:
    shown = seen.open("queue", RING, origin="birch", priority="regular")
    held: list[Route] = []
    seen.page.route("**/pause", lambda route: held.append(route))
    shown.get_by_role("button", name="Pause").click()
    dialog = seen.page.get_by_role("dialog", name="Pause birch")
    dialog.get_by_label("Reason").fill("it sent rubbish")
    seen.page.keyboard.press("Enter")
    expect(dialog.get_by_role("button", name="Working…")).to_be_visible()
    # Chromium lets no page prevent a second Escape in a row.
    seen.page.keyboard.press("Escape")
    seen.page.keyboard.press("Escape")
    dialog.get_by_role("button", name="Cancel").click(force=True)
    while not held:
        seen.page.wait_for_timeout(50)
    held[0].fulfill(status=503, json={"detail": "too many concurrent requests"})
    expect(dialog.get_by_role("alert")).to_have_text("too many concurrent requests")
    seen.page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    seen.wrong.clear()  # the browser itself logged the refused request


def test_a_dialog_of_a_server_that_hangs_ends_and_states_what_is_not_known(seen: Seen) -> None:
    seen.page.add_init_script(
        "const timeout = AbortSignal.timeout.bind(AbortSignal); AbortSignal.timeout = (millis) => timeout(millis / 60);"
    )
    seen.page.reload()
    shown = seen.open("queue", RING, origin="birch", priority="regular")
    seen.page.route("**/pause", lambda route: None)
    shown.get_by_role("button", name="Pause").click()
    dialog = seen.page.get_by_role("dialog", name="Pause birch")
    dialog.get_by_label("Reason").fill("it sent rubbish")
    seen.page.keyboard.press("Enter")
    expect(dialog.get_by_role("alert")).to_contain_text("It is not known whether this was done")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_have_count(0)
    # Readings end, too: what is shown is marked as old.
    seen.page.route("**/queue?*", lambda route: None)
    expect(shown.get_by_text("Stale.")).to_be_visible(timeout=20_000)
    seen.page.unroute("**/queue?*")
    seen.wrong.clear()  # the browser itself logged the missing answers


def test_a_dialog_opens_again_right_after_it_was_closed(seen: Seen) -> None:
    shown = seen.open("queue", RING, origin="birch", priority="regular")
    pause = shown.get_by_role("button", name="Pause").element_handle()
    pause.press("Enter")
    dialog = seen.page.get_by_role("dialog", name="Pause birch")
    expect(dialog.get_by_label("Reason")).to_be_focused()
    # Nothing else of the browser happens between the two clicks.
    seen.page.evaluate(
        "async ([cancel, pause]) => { cancel.click(); await null; pause.click(); }",
        [dialog.get_by_role("button", name="Cancel").element_handle(), pause],
    )
    expect(dialog.get_by_label("Reason")).to_be_focused()


def test_rows_are_chosen_and_acted_on_by_keyboard(seen: Seen, world: World) -> None:
    shown = seen.open("set-aside", RING)
    first = shown.get_by_role("checkbox", name="Choose heavy-0:0:0")
    first.focus()
    seen.page.keyboard.press("Space")
    expect(first).to_be_checked()
    expect(shown.get_by_text("1 chosen")).to_be_visible()
    execute, requeue, discard = tab(seen.page, 4)[-3:]
    assert (execute, discard) == ("Execute heavy-0:0:0", "Discard heavy-0:0:0")
    assert requeue.startswith("Requeue heavy-0:0:0: It does not fit now: it weighs ")
    seen.page.keyboard.press("Enter")
    dialog = seen.page.get_by_role("dialog", name="Discard 1 message")
    expect(dialog.get_by_label("Reason")).to_be_focused()
    seen.page.keyboard.type("too heavy for anybody")
    seen.page.keyboard.press("Enter")
    expect(dialog).to_have_count(0)
    expect(seen.row("heavy-0:0:0")).to_have_count(0)
    expect(seen.row("heavy-1:0:0")).to_be_visible()
    # The row that the keyboard was in is gone; it is at the top of the list, not lost.
    expect(shown.get_by_role("heading", name="Set-aside messages")).to_be_focused()
    with world.queue(RING) as queue:
        assert [one.address.origin for one in queue.set_aside.list()] == ["heavy-1"]
