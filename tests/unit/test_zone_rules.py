"""Tests of the version of the zone rules: found where zoneinfo reads, and ordered."""

import zoneinfo
from collections.abc import Iterator
from pathlib import Path

import pytest
import tzdata  # type: ignore[import-untyped]

from duly.engine.upkeep.zone_version import is_newer, rules_on_disk


@pytest.fixture(autouse=True)
def own_path() -> Iterator[None]:
    yield
    zoneinfo.reset_tzpath()


def with_file(folder: Path, name: str, text: str) -> str:
    folder.mkdir()
    (folder / name).write_text(text)
    return str(folder)


@pytest.mark.parametrize(
    ("name", "text", "version"),
    [
        ("tzdata.zi", "# version 2031b\n# more\n", "2031b"),
        ("tzdata.zi", "#version 2031b-rearguard\n", "2031b"),
        ("+VERSION", "2031aa\n", "2031aa"),
        ("tzdata.zi", "R d 1916 o\n", None),
        ("UTC", "TZif2", None),
    ],
)
def test_version_of_a_folder(tmp_path: Path, name: str, text: str, version: str | None) -> None:
    zoneinfo.reset_tzpath([with_file(tmp_path / "zones", name, text)])
    assert rules_on_disk() == version


def test_first_folder_that_has_zones_decides(tmp_path: Path) -> None:
    empty = with_file(tmp_path / "empty", "README", "nothing")
    old = with_file(tmp_path / "old", "tzdata.zi", "# version 2030a\n")
    new = with_file(tmp_path / "new", "tzdata.zi", "# version 2031b\n")
    zoneinfo.reset_tzpath([str(tmp_path / "absent"), empty, old, new])
    assert rules_on_disk() == "2030a"


def test_package_decides_where_the_machine_has_none(tmp_path: Path) -> None:
    zoneinfo.reset_tzpath([str(tmp_path)])
    assert rules_on_disk() == tzdata.IANA_VERSION


@pytest.mark.parametrize(
    ("mine", "stored", "newer"),
    [
        ("2026b", "2026a", True),
        ("2027a", "2026z", True),
        ("2026aa", "2026z", True),
        ("2026a", None, True),
        ("2026a", "2026a", False),
        ("2026a", "2026b", False),
        ("2026z", "2026aa", False),
        (None, "2026a", False),
        (None, None, False),
    ],
)
def test_order_of_versions(mine: str | None, stored: str | None, newer: bool) -> None:
    assert is_newer(mine, stored) is newer
