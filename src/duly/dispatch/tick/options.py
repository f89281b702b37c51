"""How a tick posts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from duly.errors import InvalidInput
from duly.model.dispatches import MAX_DISPATCHES, Dispatching
from duly.stores.port import ScheduleIndex

OnDispatch = Callable[[Dispatching, int], Awaitable[Any] | Any]
"""Told of every post: what, and the status of its answer; 0: there was none."""


@dataclass(frozen=True, slots=True)
class TickOptions:
    """How many, how many at once, for how long."""

    base_url: str | None = None
    """Where the application answers; None: DULY_BASE_URL."""
    max_per_tick: int = 100
    """Posts of one tick."""
    concurrency: int = 10
    """Posts at once; a tick claims no more than it can post."""
    timeout_s: float = 25.0
    """For one post, from connecting to the last byte of the answer."""
    lease_s: float = 60.0
    """How long a claim stands without a word; longer than a post may take."""
    first_delay_s: float = 10.0
    """Before a post is repeated; doubled each time, with jitter."""
    longest_delay_s: float = 600.0
    """The most that doubling comes to."""
    index: ScheduleIndex | None = None
    """An index of the application's own to claim from; None: the application's store."""
    on_dispatch: OnDispatch | None = None
    """Called with the row and the status, 0 where there was none; what it raises is logged."""

    def __post_init__(self) -> None:
        for name, most in (("max_per_tick", 1_000_000), ("concurrency", MAX_DISPATCHES)):
            if not 1 <= getattr(self, name) <= most:
                raise InvalidInput(f"{name} is {getattr(self, name)}; allowed: 1 to {most}")
        for name in ("timeout_s", "first_delay_s", "longest_delay_s"):
            if not 0 < getattr(self, name) <= 86_400:
                raise InvalidInput(
                    f"{name} is {getattr(self, name)} s; allowed: more than 0 s, up to 1 d"
                )
        if self.lease_s <= self.timeout_s:
            raise InvalidInput(
                f"lease_s is {self.lease_s}; it must be longer than timeout_s, {self.timeout_s}, "
                "or a slow post is taken for a dead tick"
            )
        if self.base_url is not None:
            check_base_url(self.base_url)


def check_base_url(url: str) -> str:
    """Refuse what is no absolute address, or names more than a place."""
    scheme, _, rest = url.partition("://")
    if scheme not in ("http", "https") or not rest or any(mark in rest for mark in "?# @"):
        # Not shown: it may hold a password.
        raise InvalidInput(
            "the base URL must be where the application answers, as in https://app.example.org"
        )
    return url.rstrip("/")
