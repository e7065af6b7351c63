"""Browser for a live Airflow, and the checks that every page must pass."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, expect

from tests.live.conftest import World

#: Where pictures for the docs are to be put, if they are to be made anew.
PICTURES = os.environ.get("AIRFLOW_MQ_PICTURES")
PATIENCE = 90_000
#: Airflow's own dashboard asks for asset events. Airflow 3.3.2 answers 500 as long as a run that an event created has not
#: started.
OF_AIRFLOW = "/api/v2/assets/events"


@dataclass
class Seen:
    """A page of the browser, and what went wrong on it."""

    page: Page
    address: str
    wrong: list[str] = field(default_factory=list)

    def open(self, view: str, ring: str = "page", **of: str) -> Locator:
        asked = "&".join(
            f"{name}={value}" for name, value in {"conn": "airflow_mq_default", "ring": ring, **of}.items()
        )
        self.page.goto(f"{self.address}/plugin/airflow-mq#/{view}?{asked}")
        shown = self.page.locator(".amq")
        expect(shown.get_by_role("navigation", name="Message queue")).to_be_visible()
        return shown

    def row(self, name: str) -> Locator:
        return self.page.locator(".amq tr", has=self.page.get_by_role("rowheader", name=name))

    def confirm(self, button: str, **fields: str) -> None:
        """Fill in a dialog and go on, until it is gone."""
        dialog = self.page.get_by_role("dialog")
        for label, text in fields.items():
            dialog.get_by_label(label.capitalize()).fill(text)
        dialog.get_by_role("button", name=button).click()
        expect(dialog).to_have_count(0)


@contextmanager
def signed_in(chromium: Browser, world: World, user: str = "admin", **how: Any) -> Iterator[Seen]:
    """The page as a person sees it; at the end, it must have logged no error."""
    context: BrowserContext = chromium.new_context(viewport={"width": 1280, "height": 900}, **how)
    context.set_default_timeout(PATIENCE)
    expect.set_options(timeout=PATIENCE)
    airflow = world.airflow
    passwords = json.loads((airflow.home / "passwords.json").read_text())
    asked = {"username": user, "password": passwords[user]}
    token = context.request.post(f"{airflow.url}/auth/token", data=asked).json()["access_token"]
    context.add_cookies([{"name": "_token", "value": token, "url": airflow.url, "httpOnly": True}])
    seen = Seen(context.new_page(), airflow.url)
    seen.page.on("pageerror", lambda error: seen.wrong.append(str(error)))
    seen.page.on("console", lambda said: seen.wrong.append(said.text) if _is_error(said) else None)
    own = (airflow.url, "data:", "blob:")
    seen.page.on("request", lambda asked: None if asked.url.startswith(own) else seen.wrong.append(asked.url))
    try:
        yield seen
        assert seen.wrong == [], seen.wrong
    finally:
        context.close()


def _is_error(said: ConsoleMessage) -> bool:
    return said.type == "error" and OF_AIRFLOW not in said.location["url"]


def assert_accessible(page: Page, what: str) -> None:
    found = Axe().run(page, context=".amq").response["violations"]
    bad = [
        (one["id"], one["help"], [node["html"][:200] for node in one["nodes"][:3]])
        for one in found
        if one["impact"] in ("serious", "critical")
    ]
    assert bad == [], what


def picture(page: Page, *name: object) -> None:
    """Take a picture for the docs."""
    if PICTURES:
        page.screenshot(path=Path(PICTURES) / f"{'-'.join(map(str, name))}.png")
