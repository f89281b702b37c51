"""The documentation site in a real browser: navigation and search, without other hosts."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.test_every_page import grave

pytestmark = pytest.mark.extended

ROOT = Path(__file__).parents[2]
PAGES = ("start.html", "reference/settings.html", "404.html")


class Quiet(SimpleHTTPRequestHandler):
    """A file server that logs nothing."""

    def log_message(self, *args: Any) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Build the site and serve its files; yield the address."""
    folder = tmp_path_factory.mktemp("documents")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        check=True,
        timeout=100,
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def reader(browser: Browser, address: str) -> Iterator[Page]:
    """Open a page; fail afterwards on console errors and requests to other hosts."""
    complaints: list[str] = []
    page = browser.new_page(base_url=address, viewport={"width": 1360, "height": 900})
    page.on("request", lambda request: complaints.append(request.url))
    page.on(
        "console",
        lambda said: complaints.append(f"console: {said.text}") if said.type == "error" else None,
    )
    yield page
    page.close()
    assert [each for each in complaints if not each.startswith(address)] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_page_is_accessible(reader: Page, path: str, scheme: Any) -> None:
    reader.emulate_media(color_scheme=scheme)
    reader.goto(f"/{path}")
    assert grave(reader) == []


def test_search_finds_a_word(reader: Page) -> None:
    with reader.expect_console_message(lambda said: "search ready" in said.text):
        reader.goto("/start.html")
    reader.get_by_role("searchbox").press_sequentially("misfire")
    found = reader.locator("#mkdocs-search-results").get_by_role("link", name="When it is late")
    found.click()
    reader.wait_for_url("**/guides/schedules.html#when-it-is-late")


def test_the_navigation_leads_to_every_part(reader: Page) -> None:
    reader.goto("/index.html")
    nav = reader.get_by_role("navigation", name="Documents")
    parts = ["Guides", "Backends", "Operating", "Reference", "Internals", "Decisions"]
    for part in parts:
        nav.get_by_text(part, exact=True).click()
    nav.get_by_role("link", name="Backups").click()
    assert reader.get_by_role("heading", level=1).inner_text().startswith("Backups")
