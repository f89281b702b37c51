"""Station 8: whether every active schedule has its row, found out bit by bit.

Each step looks at so many documents and no more, however many there are; the steps go round. What
a whole round found is exact for its time, and a row that lacks is known in the step that meets it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from duly.stores.port import Store

STEP = 5_000


@dataclass(frozen=True, slots=True)
class IndexRound:
    """What was found so far, or in the last whole round."""

    active: int = 0
    missing: int = 0
    is_whole: bool = False
    """Every schedule was looked at; until then, the first of them."""
    external: int = 0
    """Active schedules that need no index row, since their hand-over is external."""


class IndexWatch:
    """Goes round the schedules of one store."""

    def __init__(self, store: Store, step: int = STEP) -> None:
        self._store = store
        self._step = step
        self._after = ""
        self._here = IndexRound()
        self._last = IndexRound()

    async def look(self) -> IndexRound:
        """Take one step; gives what is known after it."""
        found = await self._store.check_index(self._after, self._step)
        here = IndexRound(
            self._here.active + found.active,
            self._here.missing + found.missing,
            is_whole=found.last_id is None,
            external=self._here.external + found.external,
        )
        if found.last_id is None:
            self._after, self._here, self._last = "", IndexRound(), here
            return here
        self._after, self._here = found.last_id, here
        if not self._last.is_whole:
            return here
        # What this round has met already counts, be it more than in the one before.
        missing = max(here.missing, self._last.missing)
        return replace(self._last, missing=missing)
