"""Erasure of owners, retention of history, and changes of zone rules."""

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
"""Rows that one step of erase() looks at."""
MAX_ZONED = 1_000
"""Rows that one step of recompute_zones() looks at."""
MAX_EXAMPLES = 10
DAY_MS = 86_400_000
ERASED = "erased"
"""Stands for the name of an erased owner in facts about other people's things."""


@dataclass(frozen=True, slots=True)
class Erased:
    """What erase() removed."""

    schedules: int = 0
    """Index rows that have no schedule are counted, too."""
    documents: int = 0
    jobs: int = 0
    occurrences: int = 0
    events: int = 0
    """Of its schedules, and facts about others' things that named it."""
    audit: int = 0
    """Entries that lost the owner's names; that somebody did something stays."""
    keys: int = 0
    running: int = 0
    """Jobs asked to stop: they are still there, so erase once more when they have ended."""
    cursor: str | None = None
    """Where to go on; None: done."""

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
    """What is recognised as an owner's own."""

    scope: str
    workspace: str | None
    """The workspace that is the owner's alone; None where its name could be another's."""

    @classmethod
    def of(cls, text: str) -> Owner:
        """The owner of a scope; the system is refused."""
        scope = Scope.parse(text)
        if scope.kind == "system":
            raise InvalidInput("the system is no owner to erase; name a user or a workspace")
        workspace = workspace_of(scope)
        # A workspace may be called `system` or `user:ada`, as the workspaces of others are.
        is_own = scope.kind == "user" or not (
            workspace == "system" or workspace.startswith("user:")
        )
        return cls(text, workspace if is_own else None)

    def has_job(self, scope: str, workspace: str) -> bool:
        """Whether a job runs as the owner, or in its workspace: the system's, or a member's."""
        if scope == self.scope:
            return True
        is_member = scope.startswith("user:") and self.scope.startswith("workspace:")
        return workspace == self.workspace and (scope == "system" or is_member)

    def is_named_in(self, target: str) -> bool:
        """Whether an audit entry's target spells out a schedule of the owner."""
        return target.startswith("schedule:") and f"/{self.scope}/" in target


@dataclass(frozen=True, slots=True)
class LedgerRetention:
    """How long history is kept."""

    ledger_ms: int = LEDGER_MS
    """Occurrences; at least LEDGER_MS, within which a backfill asks what has run."""
    events_ms: int = 30 * DAY_MS
    """Facts about schedules."""
    audit_ms: int = 400 * DAY_MS
    """Who did what: over a year, so that a yearly review finds the last one."""
    finished_ms: int | None = 30 * DAY_MS
    """Schedules that have finished; None: until somebody deletes them."""

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
        """Return whether an audit entry was kept long enough.

        A sign-out is kept as long as its session could last, since it is what ends the session.
        """
        kept_ms = max(self.audit_ms, MAX_SESSION_S * 1000) if action == SIGN_OUT else self.audit_ms
        return at_ms < now_ms - kept_ms


class LedgerPruned(NamedTuple):
    """What prune_ledger() removed."""

    occurrences: int
    events: int
    cursor: str | None
    """Where to go on; None: everything was looked at."""
    audit: int = 0


class SchedulesPruned(NamedTuple):
    """The schedules that prune_schedules() removed."""

    schedules: int
    cursor: str | None
    """Where to go on; None: everything was looked at."""


class ZoneMove(NamedTuple):
    """A next time that other zone rules moved."""

    schedule_id: ScheduleId
    zone: str
    old_ms: int
    new_ms: int | None
    """None: there is no next time any more."""


@dataclass(frozen=True, slots=True)
class Recomputed:
    """What recompute_zones() found and mended."""

    checked: int = 0
    moved: int = 0
    examples: tuple[ZoneMove, ...] = ()
    """The first few."""
    cursor: str | None = None
    """Where to go on; None: done."""

    def __add__(self, other: Recomputed) -> Recomputed:
        return Recomputed(
            self.checked + other.checked,
            self.moved + other.moved,
            (self.examples + other.examples)[:MAX_EXAMPLES],
            other.cursor,
        )


def target_id(target: str, kind: str) -> str | None:
    """The id in an audit entry's target `kind:id`; None where it is about something else."""
    found, _, rest = target.partition(":")
    return rest if found == kind and rest and "/" not in rest else None


def erased_target(target: str) -> str:
    """What is left of a target: its kind."""
    return f"{target.partition(':')[0]}:{ERASED}"


def check_cursor(cursor: str | None, kinds: tuple[str, ...]) -> tuple[str, str]:
    """The kind of place a cursor names, and the place; without a cursor, the beginning."""
    if cursor is None:
        return kinds[0], ""
    kind, colon, place = cursor.partition(":")
    if kind not in kinds or not colon:
        raise InvalidInput(f"cursor {cursor[:80]!r} is not one that an earlier step gave")
    return kind, place
