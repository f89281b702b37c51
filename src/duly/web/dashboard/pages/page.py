"""Common types of pages: a page takes a visit and returns a template with values."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from duly.errors import InvalidInput
from duly.flows.flow import Flow
from duly.model.jobs import JobState
from duly.operate.admin import Admin
from duly.operate.forecast import Forecast
from duly.operate.health import Health
from duly.operate.meters import Meters
from duly.operate.summary_views import Overview
from duly.web.dashboard.cached import Kept, Shared
from duly.web.operators.accounts import Operator


class MonitoredApp(Protocol):
    """Parts of an application that the pages need; `Duly` has them."""

    @property
    def admin(self) -> Admin:
        """Operator interface to the store."""

    @property
    def flows(self) -> Sequence[Flow]:
        """Flows that schedules can be created for."""

    @property
    def meters(self) -> Meters:
        """Counters of this process."""

    @property
    def safe_url(self) -> str:
        """Database URL without the password."""


class MenuCounts(NamedTuple):
    """Counts shown in the menu."""

    states: Mapping[JobState, int]
    quarantined: int

    @property
    def dead(self) -> int:
        """Number of dead jobs."""
        return self.states.get(JobState.DEAD, 0)


@dataclass(frozen=True, slots=True)
class Costly:
    """Cached reads that many pages share or that are too slow for a page."""

    overview: Shared[Overview]
    """Read at most once a second, however many pages are open."""
    forecast: Kept[Forecast]
    health: Kept[Health]
    menu: Kept[MenuCounts]

    @classmethod
    def of(cls, app: MonitoredApp) -> Costly:
        """Return the caches of an application."""
        return cls(
            Shared(lambda: _overview(app), for_s=1),
            Kept(lambda: _forecast(app), for_s=30),
            Kept(lambda: _health(app), for_s=5),
            Kept(lambda: _menu_counts(app), for_s=2),
        )


# `admin` is accessed late because it opens the database.
async def _overview(app: MonitoredApp) -> Overview:
    return await app.admin.monitoring.overview()


async def _forecast(app: MonitoredApp) -> Forecast:
    return await app.admin.monitoring.forecast()


async def _health(app: MonitoredApp) -> Health:
    return await app.admin.health(index=await app.admin.monitoring.index_health())


async def _menu_counts(app: MonitoredApp) -> MenuCounts:
    states, summary = await asyncio.gather(
        app.admin.monitoring.states(), app.admin.monitoring.due_summary()
    )
    return MenuCounts(states, summary.quarantined)


@dataclass(frozen=True, slots=True)
class PageRequest:
    """One request for a page or an action."""

    app: MonitoredApp
    costly: Costly
    operator: Operator
    now: datetime
    query: Mapping[str, str] = field(default_factory=dict)
    """Query parameters; for an action, the fields of the form."""

    @property
    def admin(self) -> Admin:
        """Operator interface to the store."""
        return self.app.admin

    def word(self, name: str) -> str | None:
        """Return a field, or None if it is absent or empty."""
        return self.query.get(name, "").strip() or None

    def need(self, name: str) -> str:
        """Return a required field; refuse if it is missing."""
        found = self.word(name)
        if found is None:
            raise InvalidInput(f"the field {name!r} is missing")
        return found

    def whole(self, name: str, otherwise: int | None = None) -> int | None:
        """Return a field as an integer; `otherwise` if it is absent."""
        found = self.word(name)
        if found is None:
            return otherwise
        if not found.isascii() or not found.removeprefix("-").isdecimal() or len(found) > 15:
            raise InvalidInput(f"the field {name!r} is {found[:30]!r}; it must be a whole number")
        return int(found)


@dataclass(frozen=True, slots=True)
class Page:
    """A page to render."""

    template: str
    title: str
    section: str
    """Menu entry that the page belongs to."""
    values: Mapping[str, Any] = field(default_factory=dict)
    is_live: bool = True
    """True: the page is updated while it is open."""


@dataclass(frozen=True, slots=True)
class Done:
    """Result of an action."""

    words: str
    go_to: str | None = None
    """Path to continue at; None: the page that the form came from."""


PageOf = Callable[[PageRequest], Awaitable[Page]]


@dataclass(frozen=True, slots=True)
class PageAction:
    """An operator action, and its name in the audit."""

    action: str
    grant: Callable[[PageRequest], Awaitable[Done]]
    target: str | Callable[[PageRequest], str]
    """Template with form fields in braces, as in `job:{id}`, or a function of the visit."""

    def target_of(self, page_request: PageRequest) -> str:
        """Return the target of an action, for the audit."""
        if callable(self.target):
            return self.target(page_request)[:512]
        return self.target.format_map(_Fields(page_request.query))[:512]


class _Fields(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "?"
