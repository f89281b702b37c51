"""Options of a tick."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from duly.errors import InvalidInput
from duly.model.dispatches import MAX_DISPATCHES, Dispatching
from duly.stores.port import ScheduleIndex

OnDispatch = Callable[[Dispatching, int], Awaitable[Any] | Any]
"""Called after every post with the row and the status of the answer; 0: there was none."""


@dataclass(frozen=True, slots=True)
class TickOptions:
    """The limits and delays of a tick, and its address."""

    base_url: str | None = None
    """The application's base URL; None: DULY_BASE_URL."""
    max_per_tick: int = 100
    """Most posts of one tick."""
    concurrency: int = 10
    """Most posts at once; a tick claims no more than it can post."""
    timeout_s: float = 25.0
    """Seconds for one post, from connecting to the last byte of the answer."""
    lease_s: float = 60.0
    """Seconds until a claim expires; must be longer than `timeout_s`."""
    first_delay_s: float = 10.0
    """Seconds before a post is repeated; doubled each time, with jitter."""
    longest_delay_s: float = 600.0
    """Most seconds before a post is repeated."""
    index: ScheduleIndex | None = None
    """An index of the application's own to claim from; None: the application's store."""
    on_dispatch: OnDispatch | None = None
    """Called with the row and the status, 0 if there was no answer; its errors are logged."""

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
                f"lease_s is {self.lease_s} s; it must be longer than timeout_s, {self.timeout_s} "
                "s, or another tick may repeat a slow post"
            )
        if self.base_url is not None:
            check_base_url(self.base_url)


def check_base_url(url: str) -> str:
    """Return the URL without a final slash; refuse one that is not absolute, or has a query."""
    scheme, _, rest = url.partition("://")
    if scheme not in ("http", "https") or not rest or any(mark in rest for mark in "?# @"):
        # Not shown: it may contain a password.
        raise InvalidInput(
            "the base URL must be an http(s) address without a query, "
            "such as https://app.example.org"
        )
    return url.rstrip("/")
