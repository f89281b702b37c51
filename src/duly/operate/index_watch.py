"""Incremental check that every active schedule has its index row.

Each step checks a bounded number of schedules; steps go round. The counts of a complete round are
exact for that round, and a missing row is reported by the step that finds it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from duly.stores.port import Store

STEP = 5_000


@dataclass(frozen=True, slots=True)
class IndexRound:
    """Counts so far, or of the last complete round."""

    active: int = 0
    missing: int = 0
    is_whole: bool = False
    """True: every schedule was checked. False: only the first ones so far."""
    external: int = 0
    """Active schedules that need no index row because their hand-over is external."""


class IndexWatch:
    """Repeated check of the schedules of one store."""

    def __init__(self, store: Store, step: int = STEP) -> None:
        self._store = store
        self._step = step
        self._after = ""
        self._here = IndexRound()
        self._last = IndexRound()

    async def look(self) -> IndexRound:
        """Check the next schedules and return the counts known so far."""
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
        # Rows found missing in this round count at once if they exceed the last round's.
        missing = max(here.missing, self._last.missing)
        return replace(self._last, missing=missing)
