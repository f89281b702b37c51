"""The port to a database: atomic verbs, and what a backend can.

Every verb is one step, atomic per row; losing a race is a return value. Times are integer
milliseconds since 1970. `now_ms=None` means the database's own clock (or the clock injected into
the store for tests). All backends pass `duly.testing.conformance`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from duly.dispatch_store import DispatchStore
from duly.glass_store import GlassStore
from duly.job_store import JobStore
from duly.ledger_store import LedgerStore
from duly.occurrences import Claimed, IndexRow
from duly.plan_store import PlanStore
from duly.schedules import (
    DEFAULT_LIMITS,
    Definition,
    HandOver,
    Limits,
    Schedule,
    ScheduleId,
    ScheduleState,
)
from duly.upkeep_store import UpkeepStore

CLAIM_LIMIT = 100
MAX_CLAIM = 10_000
MAX_PAGE = 1_000
MAX_WRITES = 10_000
"""Schedules that one call may write."""

ABSENT = 0
"""As an expected version: the thing must not exist yet."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend can, asked instead of its name."""

    joins_transaction: bool
    """Verbs that take `transaction` may run inside the caller's own transaction."""
    many_processes: bool
    """Several processes may work on one database."""
    has_clock: bool
    """The backend's own clock decides what is due."""
    notifies: bool
    """listen() hears of new jobs, so that a worker need not ask often."""


@dataclass(frozen=True, slots=True)
class Document:
    """One stored resource: scoped JSON with a version."""

    collection: str
    scope: str
    name: str
    id: str
    body: str
    """JSON text."""
    version: int
    created_at_ms: int
    updated_at_ms: int


@dataclass(frozen=True, slots=True)
class DocumentWrite:
    """What put_document() is asked to store."""

    collection: str
    scope: str
    name: str
    id: str
    """Taken when the document is new; an existing one keeps its own."""
    body: str
    entries: tuple[tuple[str, str], ...] = ()
    """(attribute, value) pairs of the sparse index; they replace all earlier ones."""
    expected_version: int | None = None
    """ABSENT, a version, or None for "whatever is there"."""
    scope_limit: int | None = None
    """Refuse a new document when the scope already holds so many."""


@dataclass(frozen=True, slots=True)
class Written:
    """The write happened."""

    document: Document
    created: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """The write did not happen, and nothing changed."""

    reason: Literal["stale", "exists", "absent", "full"]
    version: int
    """The version found (0: none); with "full", how many are counted against the limit."""
    limit: Literal["schedules", "schedules_per_flow"] = "schedules"
    """With "full" of a schedule: which of its Limits."""


@dataclass(frozen=True, slots=True)
class ScheduleKey:
    """The key of a schedule: (flow, scope, name)."""

    flow: str
    scope: str
    name: str


@dataclass(frozen=True, slots=True)
class ScheduleFilter:
    """Which schedules to search for, whoever owns them; None: any."""

    flow: str | None = None
    scope: str | None = None
    state: ScheduleState | None = None
    name_prefix: str = ""
    hand_over: HandOver | None = None


@dataclass(frozen=True, slots=True)
class ScheduleWrite:
    """What put_schedule() is asked to store."""

    key: ScheduleKey
    id: ScheduleId
    """Taken when the schedule is new; an existing one keeps its own."""
    definition: Definition
    limits: Limits = DEFAULT_LIMITS
    expected_version: int | None = None
    by: str = "system"
    """Who asked, for schedule_events."""


@dataclass(frozen=True, slots=True)
class ScheduleWritten:
    """The write happened: the schedule as it now stands, and its row if it has a next time."""

    schedule: Schedule
    row: IndexRow | None
    created: bool


@dataclass(frozen=True, slots=True)
class ScheduleEvent:
    """One fact about a schedule: appended, never changed."""

    schedule_id: ScheduleId
    kind: Literal["created", "changed", "paused", "resumed", "deleted", "finished", "quarantined"]
    at_ms: int
    by: str
    detail: dict[str, Any] = field(default_factory=dict)
    """The old timing, where it changed; for `deleted`, also the key."""
    seq: int = field(default=0, compare=False, repr=False)
    """Given by the store, rising; 0 before that."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A row that cannot be evaluated: out of the due range until it is written anew."""

    key: ScheduleKey
    schedule_id: ScheduleId
    nominal_ms: int
    error: str


@dataclass(frozen=True, slots=True)
class ReconcileReport:
    """What reconcile() found and mended."""

    checked: int = 0
    added: int = 0
    """Schedules with a next time that had no row."""
    removed: int = 0
    """Rows whose schedule has no next time, or does not exist."""
    corrected: int = 0
    """Rows that said something else than their schedule."""

    def __add__(self, other: ReconcileReport) -> ReconcileReport:
        return ReconcileReport(
            self.checked + other.checked,
            self.added + other.added,
            self.removed + other.removed,
            self.corrected + other.corrected,
        )


@dataclass(frozen=True, slots=True)
class IndexHealth:
    """Facts that tell a silent scheduler from an idle one."""

    active: int
    """Active schedules that Duly hands over itself, so that each needs an index row."""
    rows: int
    """Index rows that have a next time."""
    missing: int
    """Schedules that have a next time but no row."""
    quarantined: int
    due: int
    """Rows whose run time has come and that a planner is to take."""
    oldest_due_ms: int | None
    is_whole: bool = True
    """Everything was counted; else `active`, `rows`, `missing` and `external` are of what was seen
    so far."""
    external: int = 0
    """Active schedules of hand-over `external`, which need no index row."""

    posts_due: int = 0
    """Rows whose run time has come and that a tick is to post."""
    oldest_post_ms: int | None = None
    is_due_capped: bool = False
    """`due` and `posts_due` were counted up to a number together: there may be more."""
    is_quarantined_capped: bool = False
    """`quarantined` was counted up to a number: there may be more."""

    @property
    def is_healthy(self) -> bool:
        """Nothing that should fire is out of the index."""
        return self.missing == 0 and self.quarantined == 0


class ScheduleIndex(Protocol):
    """The public index, for applications that keep their definitions elsewhere."""

    async def upsert(self, row: IndexRow) -> None:
        """Store the row of its key, replacing the one before; parses no trigger."""

    async def claim_due(
        self,
        now_ms: int | None = None,
        limit: int = CLAIM_LIMIT,
        flow: str | None = None,
        claim_id: str | None = None,
    ) -> list[Claimed]:
        """Take rows whose run time has come, oldest first, and advance them in one transaction."""

    async def remove(self, key: ScheduleKey) -> None:
        """Remove the row of a key; absent is fine."""


class Store(
    ScheduleIndex,
    JobStore,
    PlanStore,
    DispatchStore,
    LedgerStore,
    GlassStore,
    UpkeepStore,
    Protocol,
):
    """Everything Duly asks of a database."""

    @property
    def capabilities(self) -> Capabilities:
        """What this backend can."""

    async def now_ms(self) -> int:
        """The clock that decides."""

    async def close(self) -> None:
        """Let go of connections and threads; closing twice is fine."""

    async def get_document(self, collection: str, scope: str, name: str) -> Document | None:
        """Read one document."""

    async def put_document(self, write: DocumentWrite) -> Written | Refused:
        """Store one document and its index entries, by compare-and-set on its version."""

    async def delete_document(
        self, collection: str, scope: str, name: str, expected_version: int | None = None
    ) -> Document | Refused:
        """Remove one document and its index entries; gives what was removed."""

    async def list_documents(
        self, collection: str, scope: str, *, prefix: str = "", after: str = "", limit: int = 100
    ) -> list[Document]:
        """One page of a scope's documents by name, after a name."""

    async def count_documents(self, collection: str, scope: str) -> int:
        """How many documents a scope holds."""

    async def find_documents(
        self, collection: str, attribute: str, value: str, limit: int = 100
    ) -> list[Document]:
        """Documents of any scope by an indexed attribute: one indexed query, never a scan."""

    async def get_schedule(self, key: ScheduleKey) -> Schedule | None:
        """Read one schedule."""

    async def list_schedules(
        self, flow: str, scope: str, *, after: str = "", limit: int = 100
    ) -> list[Schedule]:
        """One page of a scope's schedules by name, after a name."""

    async def search_schedules(
        self, which: ScheduleFilter, *, after: ScheduleKey | None = None, limit: int = 100
    ) -> list[Schedule]:
        """One page of schedules of all scopes by flow, name and scope, after a key.

        Every page reads an index in its order, however much is stored. Passed over are, inside one
        scope, schedules of another state or hand-over; of a hand-over, schedules of another state;
        and where schedules of hand-over `jobs` are asked for, the others.
        """

    async def find_rows(self, schedule_ids: Sequence[ScheduleId]) -> dict[ScheduleId, IndexRow]:
        """The index rows of schedules, of those that have a next time."""

    async def put_schedules(
        self, writes: Sequence[ScheduleWrite]
    ) -> list[ScheduleWritten | Refused]:
        """Store definitions with their index rows and events, in one transaction.

        A row whose timing did not change keeps its next time; otherwise the next time is the first
        after now. The index row is written before the document (the lock order).
        """

    def put_schedules_in(
        self, transaction: Any, writes: Sequence[ScheduleWrite]
    ) -> list[ScheduleWritten | Refused]:
        """The same inside the caller's own transaction, which it never aborts, commits or ends.

        Plain, not async: the caller's connection must stay on the caller's thread. Refused with
        InvalidInput where Capabilities.joins_transaction is false.
        """

    async def delete_schedule(
        self, key: ScheduleKey, *, expected_version: int | None = None, by: str = "system"
    ) -> Schedule | Refused:
        """Remove a schedule, its row and its document in one transaction; its events stay."""

    async def schedule_events(
        self, schedule_id: ScheduleId, limit: int = 100
    ) -> list[ScheduleEvent]:
        """The newest facts about a schedule, oldest first."""

    async def list_rows(
        self, *, flow: str | None = None, until_ms: int | None = None, limit: int = 100
    ) -> list[IndexRow]:
        """Index rows in the order they will be claimed."""

    async def list_quarantined(self, limit: int = 100) -> list[Quarantined]:
        """Rows that cannot be evaluated."""

    async def reconcile(self, flows: Sequence[str] | None = None) -> ReconcileReport:
        """Rebuild the index from documents and ledger; of the named flows only, where named."""

    async def index_health(self) -> IndexHealth:
        """Count what is stored against what is indexed."""
