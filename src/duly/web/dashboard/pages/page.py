"""What every page gets, and what it gives: one visit, one template with its values."""

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
    """What the pages look at: `Duly`, or anything with the same parts."""

    @property
    def admin(self) -> Admin:
        """Where everything is read and done."""

    @property
    def flows(self) -> Sequence[Flow]:
        """What schedules can be made for."""

    @property
    def meters(self) -> Meters:
        """What this process has done."""

    @property
    def safe_url(self) -> str:
        """The database, without what may be a password."""


class MenuCounts(NamedTuple):
    """What the menu says beside its words."""

    states: Mapping[JobState, int]
    quarantined: int

    @property
    def dead(self) -> int:
        """Jobs that somebody should look at."""
        return self.states.get(JobState.DEAD, 0)


@dataclass(frozen=True, slots=True)
class Costly:
    """Answers that many ask for, or that take longer than a page may: kept for a while."""

    overview: Shared[Overview]
    """However many look on, and however often, the database is asked once a second."""
    forecast: Kept[Forecast]
    health: Kept[Health]
    menu: Kept[MenuCounts]

    @classmethod
    def of(cls, app: MonitoredApp) -> Costly:
        """The answers of an application."""
        return cls(
            Shared(lambda: _overview(app), for_s=1),
            Kept(lambda: _forecast(app), for_s=30),
            Kept(lambda: _health(app), for_s=5),
            Kept(lambda: _menu_counts(app), for_s=2),
        )


# `admin` is asked for late: it opens the database.
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
class Visit:
    """One look at one page, or one wish."""

    app: MonitoredApp
    costly: Costly
    operator: Operator
    now: datetime
    query: Mapping[str, str] = field(default_factory=dict)
    """Of the address; for a wish, the fields of the form."""

    @property
    def admin(self) -> Admin:
        """Where everything is read and done."""
        return self.app.admin

    def word(self, name: str) -> str | None:
        """A field that may be absent or empty."""
        return self.query.get(name, "").strip() or None

    def need(self, name: str) -> str:
        """A field that must be there."""
        found = self.word(name)
        if found is None:
            raise InvalidInput(f"the field {name!r} is missing")
        return found

    def whole(self, name: str, otherwise: int | None = None) -> int | None:
        """A field that is a whole number."""
        found = self.word(name)
        if found is None:
            return otherwise
        if not found.isascii() or not found.removeprefix("-").isdecimal() or len(found) > 15:
            raise InvalidInput(f"the field {name!r} is {found[:30]!r}; it must be a whole number")
        return int(found)


@dataclass(frozen=True, slots=True)
class Page:
    """What to show."""

    template: str
    title: str
    section: str
    """Which part of the menu it belongs to."""
    values: Mapping[str, Any] = field(default_factory=dict)
    is_live: bool = True
    """Whether it changes while one looks on."""


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a wish."""

    words: str
    go_to: str | None = None
    """A path of the dashboard; None: back to where it came from."""


PageOf = Callable[[Visit], Awaitable[Page]]


@dataclass(frozen=True, slots=True)
class PageAction:
    """Something an operator can do, and how the audit names it."""

    action: str
    grant: Callable[[Visit], Awaitable[Done]]
    target: str | Callable[[Visit], str]
    """With the names of form fields in braces, as in `job:{id}`; or a function that tells."""

    def target_of(self, visit: Visit) -> str:
        """Return the target of an action, for the audit."""
        if callable(self.target):
            return self.target(visit)[:512]
        return self.target.format_map(_Fields(visit.query))[:512]


class _Fields(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "?"
