"""Options of a relational store."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from duly.errors import InvalidInput
from duly.model.plans import PlanSettings

Synchronous = Literal["FULL", "NORMAL"]
MAX_SECONDS = 86_400
"""Upper limit for deadlines and for the age of a connection: 24 h."""


@dataclass(frozen=True, slots=True)
class SqlOptions:
    """Options of open_store(), all with defaults."""

    namespace: str | None = None
    """PostgreSQL: name of a schema; SQLite: table prefix. Lets applications share a database."""
    skip_schema_init: bool = False
    """Run no DDL; a missing or old schema is an error that names the command to run."""
    connections: int = 5
    """Number of connections, and of threads that use them."""
    connect_attempts: int = 5
    """Connection attempts at start while the server is unreachable, with increasing delay."""
    deadline_s: float = 10.0
    """PostgreSQL: seconds the server may be silent during a statement; then the connection is
    closed, and the call raises BackendUnavailable."""
    upkeep_deadline_s: float = 300.0
    """PostgreSQL: the same for statements of prune, erase, reconcile and other upkeep. Migrations
    have no deadline."""
    recycle_s: int = 1_800
    """PostgreSQL: age in seconds at which a pooled connection is replaced."""
    prepared_statements: bool = True
    """PostgreSQL: disable behind a transaction-mode pooler without prepared statement support."""
    notifications: bool = True
    """PostgreSQL: let workers use LISTEN, so that they poll less often."""
    listen_url: str | None = None
    """PostgreSQL: a direct URL for LISTEN if the store's own URL goes through a pooler."""
    synchronous: Synchronous = "FULL"
    """SQLite: NORMAL is faster and may lose the last commits when the machine loses power."""
    busy_timeout_ms: int = 30_000
    """SQLite: milliseconds that a writer waits for another writer."""
    allow_foreign_sqlite_writers: bool = False
    """SQLite before 3.51.3: let put_schedules_in() join connections that Duly did not open."""

    fast_paths: bool = True
    """Handle plain jobs and rows in set statements; False: use only the engine (for tests)."""

    planning: PlanSettings = field(default_factory=PlanSettings)
    """Planning settings: the look-ahead of writes and per-action settings."""

    def __post_init__(self) -> None:
        if self.namespace is not None and not re.fullmatch(r"[a-z][a-z0-9_]{0,30}", self.namespace):
            raise InvalidInput(
                f"namespace is {self.namespace!r}; "
                "allowed: a-z, 0-9 and _, at most 31 characters, starting with a letter"
            )
        for name in ("connections", "connect_attempts"):
            if not 1 <= getattr(self, name) <= 1_000:
                raise InvalidInput(f"{name} is {getattr(self, name)}; allowed: 1 to 1000")
        for name in ("deadline_s", "upkeep_deadline_s", "recycle_s"):
            seconds = getattr(self, name)
            if not 1 <= seconds <= MAX_SECONDS:
                raise InvalidInput(f"{name} is {seconds} s; allowed: 1 s to {MAX_SECONDS} s")
        if self.synchronous not in ("FULL", "NORMAL"):
            raise InvalidInput(f"synchronous is {self.synchronous!r}; allowed: FULL or NORMAL")
