"""Effective settings of each queue: its own, and a pause of all queues.

A pause of all queues is a row of its own. It also applies to queues that appear later, and does not
change the settings of single queues.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from duly.model.jobs import ALL_QUEUES
from duly.model.queues import QueueSettings


class QueueRules:
    """The settings of all queues, from the rows of a store."""

    def __init__(self, stored: Iterable[QueueSettings]) -> None:
        self._own = {each.queue: each for each in stored}
        self.all = self._own.pop(ALL_QUEUES, QueueSettings(ALL_QUEUES))
        """The pause of all queues; only `is_paused` and `note` count."""

    @property
    def names(self) -> frozenset[str]:
        """Return the queues that have settings of their own."""
        return frozenset(self._own)

    def own(self, queue: str) -> QueueSettings:
        """Return the queue's own settings, or the defaults."""
        return self._own.get(queue, QueueSettings(queue))

    def of(self, queue: str) -> QueueSettings:
        """Return the effective settings: paused if the queue or all queues are paused."""
        own = self.own(queue)
        if own.is_paused or not self.all.is_paused:
            return own
        return replace(own, is_paused=True, note=self.all.note)
