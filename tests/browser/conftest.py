"""Fixtures for tests in Chromium, with a page that fails on console errors and foreign requests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, sync_playwright

from duly.web.dashboard.gate import COOKIE
from tests.browser.site import Site, serving
from tests.missing import missing_tool

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
NO_BROWSER = "chromium is not installed; on Debian: apt-get install chromium"


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    """Serve the dashboard of the sample application with ten days of history."""
    with serving() as site:
        yield site


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Start one browser for all tests."""
    where = shutil.which("chromium")
    if where is None:
        missing_tool(NO_BROWSER)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=where, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def context(browser: Browser, site: Site) -> Iterator[BrowserContext]:
    """Open a browser context without cookies or history."""
    context = browser.new_context(
        base_url=site.url, viewport={"width": 1360, "height": 900}, color_scheme="light"
    )
    context.set_default_timeout(20_000)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext, site: Site) -> Iterator[Page]:
    """Open a page; fail afterwards on console errors and requests to other hosts."""
    complaints: list[str] = []

    def look(request: Request) -> None:
        if not request.url.startswith((site.url, "data:")):
            complaints.append(f"request to {request.url}")

    page = context.new_page()
    page.on("request", look)
    page.on("pageerror", lambda error: complaints.append(f"error {error}"))
    page.on(
        "console",
        lambda said: complaints.append(f"console {said.text}") if said.type == "error" else None,
    )
    yield page
    # A refused sign-in answers 401, which the console reports as an error.
    assert [each for each in complaints if "status of 401" not in each] == []


@pytest.fixture
def ada(page: Page, site: Site) -> Page:
    """Open the overview, signed in as an operator."""
    cookie = site.auth.begin(site.auth.options.operators[0])
    page.context.add_cookies([{"name": COOKIE, "value": cookie, "url": site.url}])
    page.goto("/")
    return page
