"""The port to a database, for upkeep: an owner who leaves, history that ages, rules that change.

As in `store`: every verb is one bounded step; times are integer milliseconds by the database's
clock. A step that is not the last gives a cursor, an opaque text to go on with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from duly.durations import duration_shown, duration_text
from duly.errors import InvalidInput
from duly.glass_store import MAX_SESSION_S, SIGN_OUT
from duly.plan_store import LEDGER_MS
from duly.schedules import ScheduleId
from duly.scopes import Scope, workspace_of

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


class UpkeepStore(Protocol):
    """What Duly asks of a database for upkeep."""

    async def erase(self, scope: str, *, cursor: str | None = None, limit: int = 1_000) -> Erased:
        """Remove what an owner left, at most `limit` of each kind, and look at so many rows.

        Audit entries about its things lose their target and detail. Schedules go as
        delete_schedule() says, then documents, jobs with their events, keys, ledger and schedule
        events. A running job is asked to stop and stays. Of other owners'
        things nothing changes but the name of who acted on them. InvalidInput for the system.
        """

    async def prune_ledger(
        self, retention: LedgerRetention, limit: int = 1_000, cursor: str | None = None
    ) -> LedgerPruned:
        """Remove closed occurrences, facts and audit entries kept long enough, `limit` of each.

        Never, of a schedule that exists: its newest occurrence, one at or after its next time,
        any while it counts its runs, nor its newest fact of each kind or change of rule.
        """

    async def fold_counts(self, limit: int = 10_000) -> int:
        """Add up what count_occurrences() reads, `limit` rows at most; gives the rows saved.

        0 where there is little to save: nothing is written then.
        """

    async def prune_schedules(
        self, retention: LedgerRetention, limit: int = 1_000, cursor: str | None = None
    ) -> SchedulesPruned:
        """Delete finished schedules: those kept long enough, and those that are to be deleted then.

        One step looks at `limit` of them. Left alone are schedules with a job or a dispatch that
        has not ended, and those that the code declares. An event `deleted` tells of each; its
        ledger stays for its own retention.
        """

    async def zone_rules(self) -> str | None:
        """The version of the zone rules that all next times are right by; None: not known."""

    async def recompute_zones(
        self, rules: str | None, *, limit: int = MAX_ZONED, cursor: str | None = None
    ) -> Recomputed:
        """Move rows of zoned schedules whose next time is another by this process's zone rules.

        The right time is the first after the ledger's last and after now; a time that has come is
        left alone. The step that ends the walk stores `rules` as zone_rules(), where given.
        """


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
