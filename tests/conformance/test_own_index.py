"""The example index of the guide, with only three methods, passes the index suite."""

from pathlib import Path
from typing import Any

import pytest

from duly.stores.port import ScheduleIndex
from duly.testing.conformance import IndexConformance, OpenStore
from tests.docs.blocks import blocks

GUIDE = Path(__file__).parents[2] / "docs/guides/own-index.md"


def index_of_the_guide() -> Any:
    """Return the example class of the guide."""
    names: dict[str, Any] = {"__name__": "guide"}
    shown = next(each for each in blocks(GUIDE.read_text()) if each.language == "python")
    exec(compile(shown.code, str(GUIDE), "exec"), names)  # noqa: S102 - our own document
    return names["DictIndex"]


class TestOwnIndex(IndexConformance):
    @pytest.fixture
    def open_store(self) -> OpenStore:
        opened: OpenStore = index_of_the_guide()
        return opened


def test_the_guide_shows_only_these_methods() -> None:
    wanted = {name for name in vars(ScheduleIndex) if not name.startswith("_")}
    asked = {name for name in vars(index_of_the_guide()) if not name.startswith("_")}
    assert asked - wanted == {"due"}
