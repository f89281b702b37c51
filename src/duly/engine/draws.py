"""Ids that a use case draws: outside the transaction, so that a repeated run keeps them."""

from __future__ import annotations

from collections.abc import Mapping

from duly.clock import Clock
from duly.ids import new_ids


class Ids:
    """The ids that a use case draws: the same ones each time it is run again."""

    def __init__(
        self, clock: Clock | None = None, drawn: Mapping[str, list[str]] | None = None
    ) -> None:
        self._clock = clock
        self._drawn = {prefix: list(ids) for prefix, ids in (drawn or {}).items()}
        """By prefix."""

    def draw(self, prefix: str, start: int, count: int) -> list[str]:
        """Return `count` ids, of which those before have been drawn by an earlier attempt."""
        drawn = self._drawn.setdefault(prefix, [])
        missing = start + count - len(drawn)
        if missing > 0:
            drawn += new_ids(prefix, missing, clock=self._clock)
        return drawn[start : start + count]
