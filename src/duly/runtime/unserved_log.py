"""Log warnings about waiting jobs that no live worker would claim."""

from __future__ import annotations

import logging

from duly.operate.unserved import look_for_unserved
from duly.stores.port import JobStore

log = logging.getLogger(__name__)

LOOK_PERIOD_S = 30.0
REPEAT_S = 600.0
"""Seconds after which a warning about the same queue and action is repeated."""


class UnservedLog:
    """A check every 30 s that warns of what two checks in a row have found.

    One check is not enough: a keeper may start a moment before the worker next to it registers.
    """

    def __init__(self, store: JobStore, alive_ms: int) -> None:
        self._store = store
        self._alive_ms = alive_ms
        self._next_look = 0.0
        self._seen: set[tuple[str, str]] = set()
        self._told_at: dict[tuple[str, str], float] = {}

    async def look(self, now: float) -> None:
        """Run the check if it is due; `now` is the event loop's clock, in seconds."""
        if now < self._next_look:
            return
        self._next_look = now + LOOK_PERIOD_S
        found = await look_for_unserved(self._store, self._alive_ms)
        seen = {(each.queue, each.action) for each in found}
        self._told_at = {key: at for key, at in self._told_at.items() if key in seen}
        for each in found:
            key = each.queue, each.action
            told_at = self._told_at.get(key)
            if key in self._seen and (told_at is None or now - told_at >= REPEAT_S):
                self._told_at[key] = now
                log.warning(
                    "no live worker serves %s; start one that does, or cancel the jobs",
                    each.words(),
                    extra={
                        "event": "keeper.unserved",
                        "queue": each.queue,
                        "action": each.action,
                        "jobs": each.jobs,
                    },
                )
        self._seen = seen
