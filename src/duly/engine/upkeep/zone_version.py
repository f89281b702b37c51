"""Version of the time-zone rules that this process uses.

Like `zoneinfo`, prefer the machine's zone files over the package `tzdata`. Versions are IANA
versions such as 2026a, which are ordered; None: unknown.
"""

from __future__ import annotations

import re
import zoneinfo
from functools import lru_cache
from pathlib import Path

_VERSION = re.compile(r"\s*(?:#\s*version\s+)?(\d{4})([a-z]{1,2})\b")
_FILES = ("tzdata.zi", "+VERSION")
"""Version files of Linux and the BSDs, and of macOS."""


def rules_on_disk() -> str | None:
    """Return the version that a process started now would use; None: unknown."""
    for folder in map(Path, zoneinfo.TZPATH):
        for name in _FILES:
            if (folder / name).is_file():
                with (folder / name).open(errors="replace") as file:
                    return _version(file.readline(200))
        if (folder / "UTC").is_file():
            return None  # zone files without a version
    try:
        import tzdata  # type: ignore[import-untyped]
    except ImportError:
        return None
    return _version(tzdata.IANA_VERSION)


@lru_cache(maxsize=1)
def rules_in_use() -> str | None:
    """Return the version found on the first call, since `zoneinfo` also reads each zone once."""
    return rules_on_disk()


def is_newer(mine: str | None, stored: str | None) -> bool:
    """Return whether version `mine` is newer than `stored`; an unknown version is the oldest."""
    if mine is None:
        return False
    return stored is None or _order(mine) > _order(stored)


def _version(line: str) -> str | None:
    found = _VERSION.match(line)
    return None if found is None else f"{found[1]}{found[2]}"


def _order(version: str) -> tuple[str, int, str]:
    found = _VERSION.match(version)
    return ("", 0, "") if found is None else (found[1], len(found[2]), found[2])
