"""The memory store: the reference that the other stores are compared with.

Every verb runs under one lock and is undone if it raises. The store favours simplicity over speed
and lives as long as its process. Other verbs are in `verbs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from duly.engine import documents as document_cases
from duly.engine.schedules import extras, failing, planning
from duly.engine.schedules import index as index_cases
from duly.engine.schedules import schedules as schedule_cases
from duly.engine.transaction import Key
from duly.engine.upkeep import reconcile
from duly.errors import InvalidInput
from duly.model.documents import Document, DocumentWrite, Refused, Written
from duly.model.index import CLAIM_LIMIT, IndexHealth, Quarantined, ReconcileReport
from duly.model.index_rows import Claimed, IndexRow
from duly.model.ledger import Occurrence
from duly.model.plans import Backfill, BackfillReport, PlanReport, PlanRequest
from duly.model.schedule_writes import ScheduleEvent, ScheduleKey, ScheduleWrite, ScheduleWritten
from duly.model.schedules import Schedule, ScheduleId
from duly.stores.arguments import checked
from duly.stores.memory.reads import documents, index, schedules
from duly.stores.memory.reads.monitoring import MonitoringVerbs
from duly.stores.memory.verbs.dispatch import DispatchVerbs
from duly.stores.memory.verbs.upkeep import UpkeepVerbs
from duly.stores.port import Capabilities
from duly.triggers.instants import to_ms

__all__ = ["MemoryStore"]

FIRST: Key | None = ()
"""Start of a walk."""


@checked
class MemoryStore(DispatchVerbs, MonitoringVerbs, UpkeepVerbs):
    """A store that keeps everything in dictionaries until the process ends."""

    capabilities = Capabilities(
        joins_transaction=False, many_processes=False, has_clock=False, notifies=True
    )

    async def now_ms(self) -> int:
        """Return the current time of the host's clock, or of the injected one."""
        return to_ms(self._clock.now())

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    async def get_document(self, collection: str, scope: str, name: str) -> Document | None:
        """Return one document."""
        with self._transaction() as (tables, _):
            return documents.get(tables, (collection, scope, name))

    async def put_document(self, write: DocumentWrite) -> Written | Refused:
        """Store one document and its index entries, by compare-and-set on its version."""
        return self._transact(document_cases.put_document, write)

    async def delete_document(
        self, collection: str, scope: str, name: str, expected_version: int | None = None
    ) -> Document | Refused:
        """Remove one document and its index entries; return the removed document."""
        return self._transact(
            document_cases.delete_document, collection, scope, name, expected_version
        )

    async def list_documents(
        self, collection: str, scope: str, *, prefix: str = "", after: str = "", limit: int = 100
    ) -> list[Document]:
        """Return one page of a scope's documents by name, after a name."""
        with self._transaction() as (tables, _):
            return documents.page(tables, collection, scope, prefix, after, limit)

    async def count_documents(self, collection: str, scope: str) -> int:
        """Return the number of documents of a scope."""
        with self._transaction() as (tables, _):
            return documents.count(tables, collection, scope)

    async def find_documents(
        self, collection: str, attribute: str, value: str, limit: int = 100
    ) -> list[Document]:
        """Return documents of any scope by an indexed attribute."""
        with self._transaction() as (tables, _):
            return documents.find(tables, collection, attribute, value, limit)

    async def get_schedule(self, key: ScheduleKey) -> Schedule | None:
        """Return one schedule."""
        return self._transact(schedule_cases.get_schedule, key)

    async def list_schedules(
        self, flow: str, scope: str, *, after: str = "", limit: int = 100
    ) -> list[Schedule]:
        """Return one page of a scope's schedules by name, after a name."""
        with self._transaction() as (tables, _):
            return schedules.list_page(tables, flow, scope, after, limit)

    async def put_schedules(
        self, writes: Sequence[ScheduleWrite]
    ) -> list[ScheduleWritten | Refused]:
        """Store definitions with their index rows and events, in one transaction."""
        return self._transact(schedule_cases.put_schedules, writes)

    def put_schedules_in(
        self,
        transaction: Any,  # noqa: ARG002
        writes: Sequence[ScheduleWrite],  # noqa: ARG002
    ) -> list[ScheduleWritten | Refused]:
        """Raise InvalidInput: there is no transaction to join."""
        raise InvalidInput("the memory store has no transactions to join; use put_schedules()")

    async def delete_schedule(
        self, key: ScheduleKey, *, expected_version: int | None = None, by: str = "system"
    ) -> Schedule | Refused:
        """Remove a schedule, its row and its document; its events stay."""
        return self._transact(
            schedule_cases.delete_schedule, key, expected_version=expected_version, by=by
        )

    async def schedule_events(
        self, schedule_id: ScheduleId, limit: int = 100
    ) -> list[ScheduleEvent]:
        """Return the newest `limit` events of a schedule, oldest first."""
        with self._transaction() as (tables, _):
            return schedules.events(tables, schedule_id, limit)

    async def upsert(self, row: IndexRow) -> None:
        """Store a row under its key, replacing an earlier one; the trigger is not parsed."""
        self._transact(index_cases.upsert, row)

    async def claim_due(
        self,
        now_ms: int | None = None,
        limit: int = CLAIM_LIMIT,
        flow: str | None = None,
        claim_id: str | None = None,
    ) -> list[Claimed]:
        """Claim due rows, oldest first, and advance them."""
        return self._transact(index_cases.claim_due, now_ms, limit, flow, claim_id)

    async def plan_occurrences(self, request: PlanRequest) -> PlanReport:
        """Take due rows of hand-over `jobs`; write ledger, jobs and advance."""
        return self._transact(planning.plan_occurrences, request)

    async def find_schedule(self, schedule_id: ScheduleId) -> Schedule | None:
        """Return one schedule by its id."""
        return self._transact(schedule_cases.find_schedule, schedule_id)

    async def run_now(self, schedule_id: ScheduleId, request_id: str) -> Occurrence | None:
        """Make one extra occurrence that runs now; None: there is no such schedule."""
        return self._transact(extras.run_now, schedule_id, request_id)

    async def backfill(self, request: Backfill) -> BackfillReport | None:
        """Plan past times that are withdrawn, missed, skipped, quarantined or not in the ledger."""
        return self._transact(extras.backfill, request)

    async def pause_failing(self, schedule_id: ScheduleId) -> Schedule | None:
        """Pause a schedule if its last `pause_after_failures` runs all failed; else return None."""
        return self._transact(failing.pause_failing, schedule_id)

    async def remove(self, key: ScheduleKey) -> None:
        """Remove the row of a key; absent is fine."""
        self._transact(index_cases.remove, key)

    async def list_rows(
        self, *, flow: str | None = None, until_ms: int | None = None, limit: int = 100
    ) -> list[IndexRow]:
        """Return index rows in claim order."""
        with self._transaction() as (tables, _):
            return index.rows_page(tables, flow, until_ms, limit)

    async def list_quarantined(self, limit: int = 100) -> list[Quarantined]:
        """Return the rows that cannot be evaluated, with their errors."""
        with self._transaction() as (tables, _):
            return index.quarantined_page(tables, limit)

    async def reconcile(self, flows: Sequence[str] | None = None) -> ReconcileReport:
        """Rebuild the index from documents and ledger, of the named flows or all (None)."""
        total, declared, since = ReconcileReport(), frozenset(flows or ()), FIRST
        while since is not None:
            page = self._transact(reconcile.repair_rows, flows, since)
            total, declared, since = total + page.report, declared | page.flows, page.following
        since = FIRST
        while since is not None:
            orphans = self._transact(reconcile.remove_orphans, declared, since)
            total += ReconcileReport(removed=orphans.removed)
            since = orphans.following
        return total

    async def index_health(self) -> IndexHealth:
        """Compare stored schedules with index rows; return the counts."""
        with self._transaction() as (tables, now_ms):
            return index.health(tables, now_ms)
