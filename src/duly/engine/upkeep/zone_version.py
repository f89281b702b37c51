"""Which version of the time-zone rules this process goes by.

Takes what `zoneinfo` reads: the machine's zone files where there are any, else the package
`tzdata`. Gives an IANA version such as 2026a, which is ordered; None where nothing says it.
"""

from __future__ import annotations

import re
import zoneinfo
from functools import lru_cache
from pathlib import Path

_VERSION = re.compile(r"\s*(?:#\s*version\s+)?(\d{4})([a-z]{1,2})\b")
_FILES = ("tzdata.zi", "+VERSION")
"""Linux and the BSDs; macOS."""


def rules_on_disk() -> str | None:
    """The version that a process started now would read."""
    for folder in map(Path, zoneinfo.TZPATH):
        for name in _FILES:
            if (folder / name).is_file():
                with (folder / name).open(errors="replace") as file:
                    return _version(file.readline(200))
        if (folder / "UTC").is_file():
            return None  # rules that do not say which they are
    try:
        import tzdata  # type: ignore[import-untyped]
    except ImportError:
        return None
    return _version(tzdata.IANA_VERSION)


@lru_cache(maxsize=1)
def rules_in_use() -> str | None:
    """The version that this process found when it first asked; zones are read once, too."""
    return rules_on_disk()


def is_newer(mine: str | None, stored: str | None) -> bool:
    """Whether rules are newer than those next times were computed by; what is unknown is older."""
    if mine is None:
        return False
    return stored is None or _order(mine) > _order(stored)


def _version(line: str) -> str | None:
    found = _VERSION.match(line)
    return None if found is None else f"{found[1]}{found[2]}"


def _order(version: str) -> tuple[str, int, str]:
    found = _VERSION.match(version)
    return ("", 0, "") if found is None else (found[1], len(found[2]), found[2])
