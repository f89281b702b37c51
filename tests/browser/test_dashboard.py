"""The dashboard in a real browser on a real server."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from duly.model.jobs import JobState
from duly.model.stored_jobs import JobFilter
from tests.browser.sample import run
from tests.browser.site import PASSWORD, VIEWER_PASSWORD, Site

pytestmark = pytest.mark.extended

IMAGES = Path(__file__).parents[2] / "docs" / "images"


def picture(page: Page, name: str, folder: Path) -> None:
    """Take a screenshot, stored in docs/images if DULY_SCREENSHOTS is set."""
    where = IMAGES if os.environ.get("DULY_SCREENSHOTS") else folder
    page.screenshot(path=where / f"{name}.png", full_page=True)
    assert (where / f"{name}.png").stat().st_size > 10_000


def live(page: Page) -> None:
    """Wait for the first update of the live stream."""
    page.locator("body[data-updates]").wait_for()


def test_nothing_is_shown_before_the_sign_in(page: Page, site: Site) -> None:
    page.goto("/jobs?state=dead")
    expect(page).to_have_url(re.compile(r"/sign-in\?next="))
    page.get_by_label("Name").fill("ada")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("Wrong name or password")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(f"{site.url}/jobs?state=dead")
    page.get_by_role("button", name="Sign out").click()
    page.goto("/jobs")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_overview_changes_without_a_reload(ada: Page, site: Site, tmp_path: Path) -> None:
    live(ada)
    ada.locator("#main").evaluate("each => each.dataset.mark = 'the same page'")
    queued = ada.locator(".states a", has_text="queued").locator(".num")
    before = int(queued.inner_text())
    run(site.sample.app.client.enqueue("reports.build", {"depth": 1}))
    expect(queued).to_have_text(str(before + 1))
    expect(ada.locator("#main")).to_have_attribute("data-mark", "the same page")
    picture(ada, "overview", tmp_path)


def test_forecast_is_a_chart(ada: Page) -> None:
    chart = ada.locator("#live_forecast svg")
    expect(chart).to_have_attribute("aria-label", re.compile("Fires per minute.*at most [0-9]+"))
    assert chart.locator("rect.bar").count() > 50
    expect(ada.locator("#live_forecast")).to_contain_text("busiest minute")


def test_schedule_is_made_paused_and_resumed(ada: Page, tmp_path: Path) -> None:
    ada.goto("/schedules")
    ada.get_by_role("link", name="New schedule").click()
    ada.get_by_label("Rule").fill("0 25 * * *")
    ada.get_by_role("button", name="Preview").click()
    expect(ada.get_by_role("alert")).to_contain_text("25")
    ada.get_by_label("Rule").fill("30 7 * * MON-FRI")
    ada.get_by_label("Zone").fill("Europe/Berlin")
    ada.get_by_role("button", name="Preview").click()
    expect(ada.locator(".words")).to_contain_text("07:30")
    ada.get_by_label("Flow", exact=True).fill("reminders")
    ada.get_by_label("Action").fill("reminders.send_digest")
    ada.get_by_label("Owner").fill("user:zoe")
    ada.get_by_label("Name", exact=True).fill("from-the-page")
    ada.get_by_label("Input").fill('{"to": "zoe@example.org"}')
    ada.get_by_role("button", name="Create the schedule").click()
    expect(ada.get_by_role("heading", level=1)).to_have_text("from-the-page")
    ada.get_by_role("button", name="Pause").click()
    expect(ada.get_by_role("status")).to_contain_text("is paused")
    expect(ada.locator("#live_state")).to_have_text("paused")
    ada.get_by_role("button", name="Resume").click()
    expect(ada.locator("#live_state")).to_have_text("active")
    expect(ada.locator("#live_events")).to_contain_text("operator:ada")
    expect(ada.get_by_role("heading", name="What operators did")).to_be_visible()


def test_schedule_is_run_now(ada: Page) -> None:
    ada.goto("/schedule?flow=reports&scope=system&name=nightly")
    live(ada)
    ada.get_by_role("button", name="Run now").click()
    expect(ada.get_by_role("status")).to_contain_text("Extra run of nightly")
    ada.get_by_role("link", name="Its jobs").click()
    expect(ada.locator("#live_list tbody tr").first).to_contain_text("reports.build")


def test_past_times_are_backfilled(ada: Page, site: Site) -> None:
    now = site.sample.clock.now()
    ada.goto("/schedule?flow=reminders&scope=workspace:acme&name=quiet-hours")
    ada.get_by_label("From").fill(f"{now - timedelta(hours=5):%Y-%m-%dT%H:%M}")
    ada.get_by_label("To", exact=True).fill(f"{now - timedelta(hours=4):%Y-%m-%dT%H:%M}")
    ada.get_by_role("button", name="Backfill").click()
    expect(ada.get_by_role("status")).to_contain_text(re.compile("[1-9][0-9]* past times will run"))


def test_schedule_shows_history_and_next_times(ada: Page, tmp_path: Path) -> None:
    ada.goto("/schedules?name=daily")
    ada.get_by_role("link", name="daily-digest").nth(1).click()
    live(ada)
    assert ada.locator("svg.heat rect.cell").count() == 27 * 7
    assert ada.locator("svg.heat rect.cell.good").count() >= 8
    assert ada.locator("svg.heat rect.cell.wait.future").count() >= 60
    expect(ada.locator(".times li")).to_have_count(8)
    picture(ada, "schedule", tmp_path)


def test_why_answers(ada: Page) -> None:
    ada.goto("/schedule?flow=reports&scope=system&name=nightly")
    ada.get_by_label("At (local time").fill("2026-01-05T03:00")
    ada.get_by_role("button", name="Ask").click()
    expect(ada.locator(".answer")).to_contain_text(re.compile("before|not a time"))


def test_dead_job_is_retried(ada: Page, site: Site, tmp_path: Path) -> None:
    ada.goto("/jobs?state=dead")
    ada.locator("a[data-row]", has_text="billing.charge").first.click()
    live(ada)
    expect(ada.locator("#live_facts")).to_contain_text("dead")
    picture(ada, "job", tmp_path)
    job = ada.locator(".lead code").inner_text()
    ada.get_by_role("button", name="Try again").click()
    expect(ada.get_by_role("status")).to_contain_text("is queued")
    expect(ada.locator("#live_events")).to_contain_text("ada")
    ada.goto("/audit")
    row = ada.locator("tr", has_text=job)
    expect(row).to_contain_text("job.retry")
    found = run(site.sample.app.admin.jobs(JobFilter(state=JobState.QUEUED)))
    assert job in [each.id for each in found]


def test_theme_is_dark_when_asked_and_stays(ada: Page) -> None:
    def ground() -> str:
        return str(ada.locator("body").evaluate("each => getComputedStyle(each).backgroundColor"))

    light = ground()
    ada.get_by_role("button", name="Dark").click()
    ada.locator("html[data-theme=dark]").wait_for()
    dark = ground()
    assert dark != light
    ada.goto("/queues")
    expect(ada.locator("html")).to_have_attribute("data-theme", "dark")
    assert ground() == dark
    ada.get_by_role("button", name="Light").click()
    ada.locator("html[data-theme=light]").wait_for()
    assert ground() == light


def test_theme_follows_the_system(ada: Page) -> None:
    light = ada.locator("body").evaluate("each => getComputedStyle(each).backgroundColor")
    ada.emulate_media(color_scheme="dark")
    dark = ada.locator("body").evaluate("each => getComputedStyle(each).backgroundColor")
    assert light != dark


def test_keyboard_shortcuts_move_and_search(ada: Page) -> None:
    ada.goto("/jobs")
    ada.locator("body[data-ready]").wait_for()
    ada.keyboard.press("j")
    ada.keyboard.press("j")
    expect(ada.locator("tr.here")).to_have_count(1)
    second = ada.locator("tbody tr").nth(1)
    expect(second).to_have_class(re.compile("here"))
    ada.keyboard.press("k")
    expect(ada.locator("tbody tr").first).to_have_class(re.compile("here"))
    ada.keyboard.press("?")
    expect(ada.get_by_role("heading", name="Keyboard")).to_be_visible()
    ada.keyboard.press("Escape")
    ada.keyboard.press("/")
    expect(ada.locator("#find")).to_be_focused()
    ada.keyboard.type("nightly")
    ada.keyboard.press("Enter")
    expect(ada.locator("a[data-row]")).to_have_text("nightly")


def test_viewers_change_nothing(page: Page) -> None:
    page.goto("/sign-in")
    page.get_by_label("Name").fill("vic")
    page.get_by_label("Password").fill(VIEWER_PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.goto("/jobs?state=dead")
    page.locator("a[data-row]").first.click()
    expect(page.get_by_role("button", name="Try again")).to_be_disabled()


def test_pages_work_without_scripts(context: BrowserContext, site: Site) -> None:
    browser = context.browser
    assert browser is not None
    plain = browser.new_context(base_url=site.url, java_script_enabled=False)
    page = plain.new_page()
    page.goto("/sign-in")
    page.get_by_label("Name").fill("ada")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.goto("/queue?name=mail")
    page.get_by_label("Why it is paused").fill("tests")
    page.get_by_role("button", name="Pause the queue").click()
    expect(page.get_by_role("status")).to_contain_text("is paused")
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("status")).to_contain_text("is resumed")
    page.get_by_role("button", name="Dark").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    plain.close()
