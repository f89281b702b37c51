"""Every page: no serious accessibility violation, and no secret."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from duly.web.dashboard.site import PAGES
from tests.browser.sample import SECRET_PARTS
from tests.browser.site import METRICS_TOKEN, Site

pytestmark = pytest.mark.extended

LIST_PAGES = sorted(
    set(PAGES) - {"/job", "/jobs/confirm", "/schedule", "/schedules/edit", "/queue"}
)
OF_ONE = (
    "/queue?name=mail",
    "/schedule?flow=billing&scope=system&name=sync-ledger&at=2026-01-05T03:00",
    "/schedules/edit?flow=reports&scope=system&name=nightly",
    "/schedules/new?rule=0+9+*+*+MON&zone=Europe/Berlin",
    "/jobs?state=dead",
    "/jobs/confirm?do=retry&state=dead",
)
GRAVE = ("serious", "critical")


def grave(page: Page) -> list[tuple[str, str]]:
    """Return the serious and critical violations that axe finds."""
    found: list[dict[str, Any]] = Axe().run(page).response["violations"]
    return [
        (each["id"], each["nodes"][0]["html"][:160]) for each in found if each["impact"] in GRAVE
    ]


@pytest.mark.parametrize("path", [*LIST_PAGES, *OF_ONE])
def test_page_is_accessible(ada: Page, path: str) -> None:
    ada.goto(path)
    assert grave(ada) == []


@pytest.mark.parametrize("path", ["/", "/queues", "/health"])
def test_dark_page_is_accessible(ada: Page, path: str) -> None:
    ada.emulate_media(color_scheme="dark")
    ada.goto(path)
    assert grave(ada) == []


@pytest.mark.planted("browsers")
def test_inaccessible_page_is_detected(ada: Page) -> None:
    ada.locator("#find").evaluate("each => { each.labels[0].remove(); each.placeholder = '' }")
    assert "label" in [name for name, _ in grave(ada)]


def test_job_and_sign_in_are_accessible(ada: Page) -> None:
    ada.goto("/jobs?state=dead")
    ada.locator("a[data-row]").first.click()
    assert grave(ada) == []
    ada.get_by_role("button", name="Sign out").click()
    assert grave(ada) == []


def test_secrets_are_on_no_page(ada: Page, site: Site) -> None:
    paths = [*LIST_PAGES, *OF_ONE, "/jobs", "/metrics", "/readyz", "/jobs?state=processing"]
    cookies = {each["name"]: each["value"] for each in ada.context.cookies()}
    with httpx.Client(base_url=site.url, cookies=cookies) as client:
        for state in ("dead", "succeeded", "processing", "retrying", "queued"):
            listed = client.get("/jobs", params={"state": state}).text
            paths += [f"/job?id={part.split(chr(34))[0]}" for part in listed.split("/job?id=")[1:9]]
        assert len(paths) > 30
        for path in paths:
            answer = client.get(path)
            assert answer.status_code == 200, path
            # Parts of the secret too; none could occur in a random id or a timestamp.
            shown = [part for part in SECRET_PARTS if part in answer.text]
            assert shown == [], path


def test_metrics_answer_a_scraper(site: Site) -> None:
    with httpx.Client(base_url=site.url) as client:
        assert client.get("/metrics").status_code in (303, 401)
        wrong = client.get("/metrics", headers={"Authorization": "Bearer wrong-wrong-wrong-wrong"})
        assert wrong.status_code == 401
        right = client.get("/metrics", headers={"Authorization": f"Bearer {METRICS_TOKEN}"})
        assert right.status_code == 200
        assert 'duly_jobs{state="dead"}' in right.text
