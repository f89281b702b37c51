"""The configuration of an application: one frozen value, checked when it is made."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypedDict

from duly.clock import Clock
from duly.dispatch.options import HttpOptions
from duly.errors import InvalidInput, shown
from duly.flows.collections.schema import nearest
from duly.flows.context import Authorize
from duly.runtime import KeeperOptions, PlannerOptions, WorkerOptions
from duly.settings import Settings
from duly.stores.sql.options import SqlOptions, Synchronous

DAY_S = 86_400
_MAX_SECONDS = {"look_ahead_s": DAY_S, "priority_aging_s": 366 * DAY_S}


class ConfigWords(TypedDict, total=False):
    """The options of Duly(): fields of Config, and of its `database`."""

    authorize: Authorize | None
    clock: Clock | None
    look_ahead_s: float
    priority_aging_s: float
    database: SqlOptions
    http: HttpOptions | None
    worker: WorkerOptions
    planner: PlannerOptions
    keeper: KeeperOptions
    settings: Settings | None
    namespace: str | None
    skip_schema_init: bool
    connections: int
    connect_attempts: int
    deadline_s: float
    upkeep_deadline_s: float
    recycle_s: int
    prepared_statements: bool
    notifications: bool
    listen_url: str | None
    synchronous: Synchronous
    busy_timeout_ms: int
    allow_foreign_sqlite_writers: bool
    fast_paths: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The configuration of an application, with defaults for everything."""

    authorize: Authorize | None = None
    """Called as `authorize(principal, schedule)` before a schedule's job starts; may be async.
    None: every schedule may run."""
    clock: Clock | None = None
    """Replaces the database's clock, for tests; None: the database's clock."""
    look_ahead_s: float = 60.0
    """Seconds before its run time that a schedule's job is made."""
    priority_aging_s: float = 0.0
    """Seconds of waiting that raise a job by one priority; 0: priorities do not age."""
    database: SqlOptions = field(default_factory=SqlOptions)
    """Options of the store."""
    http: HttpOptions = field(default_factory=HttpOptions)
    """Options of the HTTP surface."""
    worker: WorkerOptions = field(default_factory=WorkerOptions)
    """Options of workers that are started without options of their own."""
    planner: PlannerOptions = field(default_factory=PlannerOptions)
    """The same for planners."""
    keeper: KeeperOptions = field(default_factory=KeeperOptions)
    """The same for keepers."""
    settings: Settings | None = None
    """Settings of the process; None: the environment's, read when they are needed."""

    def __post_init__(self) -> None:
        for name, kind in _KINDS.items():
            value = getattr(self, name)
            if not isinstance(value, kind) and not (name == "settings" and value is None):
                raise InvalidInput(f"{name} is {shown(value)}; pass {kind.__name__}(...)")
        for name, most_s in _MAX_SECONDS.items():
            value = getattr(self, name)
            # not bool, which is an int
            is_number = type(value) in (int, float) and math.isfinite(value)
            if not is_number or not 0 <= value <= most_s:
                raise InvalidInput(f"{name} is {shown(value)}; allowed: 0 s to {most_s // DAY_S} d")
        if self.clock is not None and not callable(getattr(self.clock, "now", None)):
            raise InvalidInput(f"clock is {shown(self.clock)}; pass a Clock or None")
        if self.authorize is not None and not callable(self.authorize):
            raise InvalidInput(f"authorize is {shown(self.authorize)}; pass a function or None")

    def with_options(self, words: ConfigWords) -> Config:
        """Return this configuration with some options replaced; refuse unknown ones."""
        own, database = set(_names(Config)), set(_names(SqlOptions)) - {"planning"}
        for name in words:
            if name not in own | database:
                hint = nearest(name, own | database)
                raise InvalidInput(f"Duly() has no option {shown(name)!r}; {hint}")
        given: dict[str, Any] = {name: value for name, value in words.items() if name in own}
        if given.get("http", self) is None:
            given["http"] = HttpOptions()
        changed = replace(self, **given)
        stored: dict[str, Any] = {name: value for name, value in words.items() if name in database}
        return replace(changed, database=replace(changed.database, **stored)) if stored else changed


_KINDS: dict[str, type] = {
    "database": SqlOptions,
    "http": HttpOptions,
    "worker": WorkerOptions,
    "planner": PlannerOptions,
    "keeper": KeeperOptions,
    "settings": Settings,
}


def _names(kind: type) -> list[str]:
    return [each.name for each in fields(kind)]
