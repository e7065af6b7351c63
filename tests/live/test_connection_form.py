"""Airflow's own form for a connection of our type, in a real browser: our fields, and a connection that works."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from airflow_mq.provider import HOOK_NAME, get_provider_info
from tests.live.conftest import World
from tests.live.looking import Seen, picture

CONN_ID = "typed_in"


@pytest.fixture(scope="module")
def world(worlds: dict[str, World]) -> World:
    return worlds["sqlite"]


def test_a_connection_is_made_in_the_form_and_works(seen: Seen, world: World) -> None:
    (told,) = get_provider_info()["connection-types"]
    page = seen.page
    page.set_viewport_size({"width": 1280, "height": 1_300})
    page.add_init_script("localStorage.setItem('theme', 'light')")
    page.goto(f"{seen.address}/connections")
    page.get_by_role("button", name=re.compile("Add Connection", re.IGNORECASE)).click()
    form = page.get_by_role("dialog")
    form.get_by_role("combobox").first.click()
    page.keyboard.type("Message")
    page.get_by_role("option", name=HOOK_NAME, exact=True).click()

    # The fields of every connection, under our names.
    behaviour = told["ui-field-behaviour"]
    for name, label in behaviour["relabeling"].items():
        expect(form.get_by_text(label, exact=True)).to_be_visible()
        assert form.locator(f"[name={name}]").count() == 1
    for name in ("host", "port", "login", "schema"):
        assert form.locator(f"[name={name}]").get_attribute("placeholder") == behaviour["placeholders"][name]
    picture(page, "connection-form-light-1280")

    # Our own, each with what it means.
    form.get_by_role("button", name="Extra Fields", exact=True).click()
    for name, field in told["conn-fields"].items():
        expect(form.get_by_text(field["label"], exact=True)).to_be_visible()
        expect(form.get_by_text(field["description"])).to_be_visible()
        assert form.locator(f"[name=element_{name}]").count() == 1
    driver = form.locator("xpath=//input[@name='element_driver']/..").get_by_role("combobox")
    driver.click()
    page.get_by_role("option", name="sqlite", exact=True).click()
    path = form.locator("[name=element_path]")
    path.fill(behaviour["placeholders"]["path"])
    picture(page, "connection-extra-light-1280")
    form.locator("[name=connection_id]").fill(CONN_ID)
    path.fill(world.store.removeprefix("sqlite:///"))
    form.get_by_role("button", name="Save").click()
    expect(form).to_have_count(0)

    # What the form made is a store that the page shows.
    try:
        shown = seen.open("ring", "default", conn=CONN_ID)
        expect(shown.get_by_label("Connection")).to_have_value(CONN_ID)
        expect(shown.get_by_role("alert")).to_have_count(0)
    finally:
        world.airflow.call("DELETE", f"connections/{CONN_ID}")
