"""Fork handling: a forked process has no threads of its parent and must not use its connections.

Servers load an application once and fork it; objects with threads or connections start anew.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    """An object that keeps threads or connections."""

    def detach_from_parent(self) -> None:
        """Start anew in a child; what belongs to the parent is neither used nor closed."""


_known: WeakSet[Forkable] = WeakSet()


def watch_forks(keeper: Forkable) -> None:
    """Call the object's leave_parent() after each fork, as long as the object lives."""
    _known.add(keeper)


def _detach_from_parent() -> None:
    for keeper in list(_known):
        keeper.detach_from_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_detach_from_parent)
