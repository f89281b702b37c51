"""Tests of the documentation site: complete, no broken links, no requests to other hosts."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tools.site.links import linked_files, relinked, repository_path, site_uri, targets

ROOT = Path(__file__).parents[2]
SOURCES = ("docs", "tools", "mkdocs.yml", "src/duly/web/dashboard/static/icon.svg")
SPOILED = "[a](gone.md) [b](README.md#nowhere) [c](../LOST.md)"
WORDS = ("lonely.md", "gone.md", "nowhere", "LOST.md")
# Attributes that make a browser fetch something by itself.
FETCHING = {"src", "srcset", "data", "poster", "background"}
ELSEWHERE = re.compile(r"^(?:[a-z]+:)?//", re.IGNORECASE)


class Fetches(HTMLParser):
    """Collect the addresses that a page loads without a click."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.found += [value for name, value in attributes.items() if name in FETCHING]
        # Browsers do not fetch a canonical address.
        if tag == "link" and attributes.get("rel") != "canonical":
            self.found.append(attributes.get("href", ""))
        self.found += re.findall(r"url\(['\"]?([^'\")]+)", attributes.get("style", ""))


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of the sources of the site, for tests that break it."""
    folder = tmp_path / "copy"
    folder.mkdir()
    for name in [*SOURCES, *linked_files(ROOT)]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name)
        else:
            shutil.copy(ROOT / name, folder / name)
    for name in ("benchmarks/results", "tests/property"):  # linked as folders
        (folder / name).mkdir(parents=True, exist_ok=True)
    return folder


def test_every_document_is_a_page_in_the_navigation(site: Path) -> None:
    named = (site / "index.html").read_text()
    for path in sorted(ROOT.glob("docs/**/*.md")):
        page = path.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
        page = page.replace("README.html", "index.html")
        assert (site / page).is_file(), page
        assert f'href="{page}"' in named or page == "index.html", f"{page} is not in the navigation"


def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 50
    for page in pages:
        assert fetched_elsewhere(page.read_text()) == [], page
    for sheet in site.rglob("*.css"):
        assert elsewhere_in_css(sheet.read_text()) == [], sheet
    for script in site.rglob("*.js"):
        assert not re.search(
            r"(?:importScripts|import|fetch)\(['\"](?:https?:)?//", script.read_text()
        )


def test_code_is_coloured_without_a_script(site: Path) -> None:
    assert '<span class="kn">from</span>' in (site / "start.html").read_text()


def test_examples_are_in_the_site(site: Path) -> None:
    assert (site / "repository/examples/fastapi_app/fastapi_app.py.txt").is_file()


def test_an_unchanged_copy_builds(copy: Path, tmp_path: Path) -> None:
    """The unchanged copy builds, so the next test fails because of what it breaks."""
    done = build(copy, tmp_path / "site")
    assert done.returncode == 0, done.stderr


@pytest.mark.planted("documents")
def test_a_spoiled_site_is_refused(copy: Path, tmp_path: Path) -> None:
    (copy / "docs/lonely.md").write_text("# Lonely\n")
    page = copy / "docs/start.md"
    page.write_text(f"{page.read_text()}\n{SPOILED}\n")
    done = build(copy, tmp_path / "site")
    assert done.returncode != 0
    assert [word for word in WORDS if word not in done.stderr] == []
    assert done.stderr.count("WARNING") == len(WORDS)


@pytest.mark.planted("documents")
@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://cdn.example.org/a.js"></script>',
        '<link rel="stylesheet" href="//fonts.example.org/css">',
        '<img src="http://example.org/a.png">',
        "<p style=\"background: url('https://example.org/a.png')\">",
    ],
)
def test_what_a_page_fetches_is_seen(text: str) -> None:
    assert fetched_elsewhere(text)
    assert not fetched_elsewhere('<a href="https://example.org">x</a><img src="a.png">')


@pytest.mark.planted("documents")
def test_what_a_style_sheet_fetches_is_seen() -> None:
    assert elsewhere_in_css("@import 'https://example.org/a.css';")
    assert elsewhere_in_css("a { src: url(//example.org/a.woff2) }")
    assert not elsewhere_in_css("a { src: url(../fonts/a.woff2) }")


LINKED = """[a](../ARCHITECTURE.md#layers) `[no](../x.md)` [two
lines](guides/flows.md) ![b](images/b.png) [c](../tests) [d](https://example.org) [e](#here)
```text
[f](../x.md)
```
[g](../examples/a.py)"""


def test_links_are_rewritten() -> None:
    assert relinked(LINKED, "docs/start.md", lambda path: path == "tests") == (
        "[a](repository/ARCHITECTURE.md#layers) `[no](../x.md)` [two\n"
        "lines](guides/flows.md) ![b](images/b.png) c [d](https://example.org) [e](#here)\n"
        "```text\n[f](../x.md)\n```\n[g](repository/examples/a.py.txt)"
    )
    assert relinked("[a](docs/start.md)", "README.md", lambda _: False) == "[a](../start.md)"


def test_targets_are_paths_of_the_repository() -> None:
    assert list(targets(LINKED, "docs/start.md")) == [
        "ARCHITECTURE.md",
        "docs/guides/flows.md",
        "docs/images/b.png",
        "tests",
        "examples/a.py",
    ]


@pytest.mark.parametrize("path", ["docs/guides/flows.md", "README.md"])
def test_a_page_knows_its_file(path: str) -> None:
    assert repository_path(site_uri(path)) == path


def fetched_elsewhere(html: str) -> list[str]:
    page = Fetches()
    page.feed(html)
    return [address for address in page.found if ELSEWHERE.match(address)]


def elsewhere_in_css(text: str) -> list[str]:
    return [address for address in _addresses(text) if ELSEWHERE.match(address)]


def _addresses(text: str) -> Iterator[str]:
    yield from re.findall(r"url\(\s*['\"]?([^'\")]+)", text)
    yield from re.findall(r"@import\s+['\"]([^'\"]+)", text)
