"""Erasure of owners, retention of history, and zone rule changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from duly.errors import InvalidInput
from duly.model.plans import LEDGER_MS
from duly.model.schedules import ScheduleId
from duly.model.scopes import Scope, workspace_of
from duly.model.summaries import MAX_SESSION_S, SIGN_OUT
from duly.triggers.durations import duration_shown, duration_text

MAX_ERASE = 10_000
"""Rows that one step of erase() reads."""
MAX_ZONED = 1_000
"""Rows that one step of recompute_zones() reads."""
MAX_EXAMPLES = 10
DAY_MS = 86_400_000
ERASED = "erased"
"""Replaces the name of an erased owner in events and audit entries of others."""


@dataclass(frozen=True, slots=True)
class Erased:
    """The result of erase()."""

    schedules: int = 0
    """Includes index rows without a schedule."""
    documents: int = 0
    jobs: int = 0
    occurrences: int = 0
    events: int = 0
    """Events of its schedules, and events of others that named it."""
    audit: int = 0
    """Entries from which the owner's names were removed; the entries stay."""
    keys: int = 0
    running: int = 0
    """Jobs asked to stop; they still exist. Erase again when they have ended."""
    cursor: str | None = None
    """Start of the next step; None: done."""

    def __add__(self, other: Erased) -> Erased:
        return Erased(
            self.schedules + other.schedules,
            self.documents + other.documents,
            self.jobs + other.jobs,
            self.occurrences + other.occurrences,
            self.events + other.events,
            self.audit + other.audit,
            self.keys + other.keys,
            self.running + other.running,
            other.cursor,
        )


@dataclass(frozen=True, slots=True)
class Owner:
    """An owner to erase, and how to recognise what belongs to it."""

    scope: str
    workspace: str | None
    """The owner's own workspace; None: the name may belong to another owner."""

    @classmethod
    def of(cls, text: str) -> Owner:
        """Return the owner of a scope; refuse the system."""
        scope = Scope.parse(text)
        if scope.kind == "system":
            raise InvalidInput("the system cannot be erased; name a user or a workspace")
        workspace = workspace_of(scope)
        # A stored workspace may be named `system` or `user:ada`, like those of other owners.
        is_own = scope.kind == "user" or not (
            workspace == "system" or workspace.startswith("user:")
        )
        return cls(text, workspace if is_own else None)

    def has_job(self, scope: str, workspace: str) -> bool:
        """Return whether a job runs as the owner, or as the system or a member in its workspace."""
        if scope == self.scope:
            return True
        is_member = scope.startswith("user:") and self.scope.startswith("workspace:")
        return workspace == self.workspace and (scope == "system" or is_member)

    def is_named_in(self, target: str) -> bool:
        """Return whether an audit entry's target names a schedule of the owner."""
        return target.startswith("schedule:") and f"/{self.scope}/" in target


@dataclass(frozen=True, slots=True)
class LedgerRetention:
    """Retention of history."""

    ledger_ms: int = LEDGER_MS
    """Occurrences; at least LEDGER_MS, since a backfill checks in this range what has run."""
    events_ms: int = 30 * DAY_MS
    """Schedule events."""
    audit_ms: int = 400 * DAY_MS
    """Audit entries; over a year, so that a yearly review finds the last one."""
    finished_ms: int | None = 30 * DAY_MS
    """Finished schedules; None: kept until deleted."""

    def __post_init__(self) -> None:
        for what, least in (
            ("ledger_ms", LEDGER_MS),
            ("events_ms", DAY_MS),
            ("audit_ms", DAY_MS),
            ("finished_ms", DAY_MS),
        ):
            if what == "finished_ms" and self.finished_ms is None:
                continue
            if type(found := getattr(self, what)) is not int or found < least:
                raise InvalidInput(
                    f"{what} is {duration_shown(found)}; allowed: {duration_text(least)} or more, "
                    "in whole milliseconds"
                )

    def is_audit_over(self, action: str, at_ms: int, now_ms: int) -> bool:
        """Return whether the retention of an audit entry has passed.

        A sign-out is kept as long as its session could last, because it ends the session.
        """
        kept_ms = max(self.audit_ms, MAX_SESSION_S * 1000) if action == SIGN_OUT else self.audit_ms
        return at_ms < now_ms - kept_ms


class LedgerPruned(NamedTuple):
    """The result of prune_ledger()."""

    occurrences: int
    events: int
    cursor: str | None
    """Start of the next step; None: done."""
    audit: int = 0


class SchedulesPruned(NamedTuple):
    """The result of prune_schedules()."""

    schedules: int
    cursor: str | None
    """Start of the next step; None: done."""


class ZoneMove(NamedTuple):
    """A next time moved by changed zone rules."""

    schedule_id: ScheduleId
    zone: str
    old_ms: int
    new_ms: int | None
    """None: no next time."""


@dataclass(frozen=True, slots=True)
class Recomputed:
    """The result of recompute_zones()."""

    checked: int = 0
    moved: int = 0
    examples: tuple[ZoneMove, ...] = ()
    """The first moves, at most MAX_EXAMPLES."""
    cursor: str | None = None
    """Start of the next step; None: done."""

    def __add__(self, other: Recomputed) -> Recomputed:
        return Recomputed(
            self.checked + other.checked,
            self.moved + other.moved,
            (self.examples + other.examples)[:MAX_EXAMPLES],
            other.cursor,
        )


def target_id(target: str, kind: str) -> str | None:
    """Return the id in an audit entry's target `kind:id`; None for another kind."""
    found, _, rest = target.partition(":")
    return rest if found == kind and rest and "/" not in rest else None


def erased_target(target: str) -> str:
    """Return an erased target: only its kind is left."""
    return f"{target.partition(':')[0]}:{ERASED}"


def check_cursor(cursor: str | None, kinds: tuple[str, ...]) -> tuple[str, str]:
    """Return the kind and position of a cursor (None: the start); refuse an invalid one."""
    if cursor is None:
        return kinds[0], ""
    kind, colon, place = cursor.partition(":")
    if kind not in kinds or not colon:
        raise InvalidInput(f"cursor {cursor[:80]!r} is invalid; pass that of the previous step")
    return kind, place
