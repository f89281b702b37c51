"""Tests of the generated reference pages: up to date with the code, and complete."""

import inspect
import re
from pathlib import Path

import pytest
from tools.reference import PAGES, fill, marks
from tools.reference.errors import every_class, every_word
from tools.reference.metrics import families
from tools.reference.settings import OPTIONS, fields

from duly import errors
from duly.settings import Settings
from duly.stores.sql.schema.migrate import migrations
from duly.web.api.openapi import document

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs/reference"


def page(name: str) -> str:
    return (REFERENCE / name).read_text()


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_up_to_date(name: str) -> None:
    text = (ROOT / name).read_text()
    assert text == fill(name, text), "run make docs"


def test_every_mark_of_a_document_is_filled() -> None:
    marked = {
        path.relative_to(ROOT).as_posix()
        for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
        if marks(path.read_text())
    }
    assert marked == set(PAGES)


@pytest.mark.planted("documents")
def test_a_stale_page_is_found() -> None:
    name = "docs/reference/states.md"
    text = (ROOT / name).read_text()
    stale = text.replace(
        "| `queued` | `processing`, `cancelled`, `deleted` |", "| `queued` | nothing |"
    )
    assert stale != text
    assert fill(name, stale) == text


@pytest.mark.planted("documents")
def test_a_lost_mark_is_found() -> None:
    name = "docs/reference/states.md"
    text = (ROOT / name).read_text().replace("<!-- generated: jobs -->", "")
    with pytest.raises(ValueError, match="expected"):
        fill(name, text)


@pytest.mark.parametrize("kind", [Settings, *(kind for kind, _ in OPTIONS)])
def test_every_option_has_a_meaning(kind: type) -> None:
    assert [name for name, _, about in fields(kind) if not about.endswith(".")] == []


def test_every_class_of_options_is_on_the_page() -> None:
    """Option classes are recognized by their names: they end in Options or Retention."""
    found = set()
    for path in sorted((ROOT / "src/duly").rglob("*.py")):
        if "testing" not in path.parts:
            found |= set(
                re.findall(r"^class (\w*(?:Options|Retention))[:(]", path.read_text(), re.M)
            )
    # The options of one job or one schedule are in the guides, with the calls that take them.
    # RunOptions are the part of ActionOptions that a job takes.
    of_calls = {"CollectionOptions", "JobOptions", "RunOptions", "ScheduleOptions", "StaticOptions"}
    assert {kind.__name__ for kind, _ in OPTIONS} >= found - of_calls


def test_every_variable_is_read() -> None:
    read = set(re.findall(r"DULY_\w+", inspect.getsource(Settings.from_environment)))
    assert set(re.findall(r"^\| `(DULY_\w+)` \|", page("settings.md"), re.M)) == read


def test_the_tree_draws_every_error_of_its_module() -> None:
    drawn = set(re.findall(r"[├└─ │]*(\w+)  ", errors.__doc__ or "")) | {"DulyError"}
    assert drawn >= {kind.__name__ for kind in every_class() if kind.__module__ == "duly.errors"}


def test_http_words_that_documents_name_exist() -> None:
    known = {word for _, word in every_word()}
    named = re.findall(r"`error: (\w+)`", page("http.md"))
    assert len(named) > 8
    assert set(named) <= known


def test_every_operation_is_on_the_page() -> None:
    called = {
        f"{method.upper()} {path}" for path, each in document()["paths"].items() for method in each
    }
    assert set(re.findall(r"^\| `([A-Z]+ /\S+)` \|", page("http.md"), re.M)) >= called


def test_every_table_is_explained() -> None:
    explained = re.findall(r"^\| `(duly_\w+)` \|", page("schema.md"), re.M)
    assert explained == re.findall(r"^### (duly_\w+)$", page("schema.md"), re.M)


def test_every_index_is_on_the_page() -> None:
    named: set[str] = set()
    for step in migrations("postgresql"):
        named -= set(re.findall(r"DROP INDEX \{p\}(\w+)", step.sql))
        named |= set(re.findall(r"CREATE (?:UNIQUE )?INDEX \{i\}(\w+)", step.sql))
    assert named
    assert {name for name in named if f"_{name}`:" not in page("schema.md")} == set()


@pytest.mark.parametrize("name", ["alerts.md", "metrics.md", "sizing.md"])
def test_metrics_that_operators_read_about_exist(name: str) -> None:
    known = {family.name for family in families()}
    text = (ROOT / "docs/operating" / name).read_text()
    named = {re.sub(r"_(?:total|bucket)$", "", word) for word in re.findall(r"\bduly_\w+", text)}
    assert named
    assert named <= known


def test_the_glossary_is_in_order() -> None:
    found = [word.lower() for word in re.findall(r"^\| ([a-z][^|]*) \|", page("glossary.md"), re.M)]
    assert len(found) > 30
    assert found[1:] == sorted(found[1:])
