"""Named locks."""

from __future__ import annotations

from typing import NamedTuple


class Lock(NamedTuple):
    """A named lock that its owner holds until a time unless it extends it."""

    name: str
    owner: str
    fence: int
    """Grows with every change of owner."""
    until_ms: int
