"""A process that was forked has neither the threads nor, by rights, the connections of its parent.

Servers load an application once and fork it; whoever keeps such things leaves them to the parent.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    """Something that keeps threads or connections."""

    def leave_parent(self) -> None:
        """Begin anew, in a child: what belongs to the parent is neither used nor closed."""


_known: WeakSet[Forkable] = WeakSet()


def watch_forks(keeper: Forkable) -> None:
    """Let it know of forks, as long as it lives."""
    _known.add(keeper)


def _leave_parent() -> None:
    for keeper in list(_known):
        keeper.leave_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_parent)
