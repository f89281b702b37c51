"""Named locks."""

from __future__ import annotations

from typing import NamedTuple


class Lock(NamedTuple):
    """A named lock, held until a time unless the owner extends it."""

    name: str
    owner: str
    fence: int
    """Increases with every change of owner."""
    until_ms: int
