"""The relational store: the async port, one thread hop per verb.

Verbs are plain functions of a connection; `transactions` runs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from duly.engine import documents as document_cases
from duly.engine.ids import Ids
from duly.engine.schedules import extras as extra_cases
from duly.engine.schedules import failing
from duly.engine.schedules import index as index_cases
from duly.engine.schedules import planning as planning_cases
from duly.engine.schedules import schedules as schedule_cases
from duly.engine.transaction import Key
from duly.engine.upkeep import reconcile
from duly.model.documents import Document, DocumentWrite, Refused, Written
from duly.model.index import CLAIM_LIMIT, IndexHealth, Quarantined, ReconcileReport
from duly.model.index_rows import Claimed, IndexRow
from duly.model.ledger import Occurrence
from duly.model.plans import Backfill, BackfillReport, PlanReport, PlanRequest
from duly.model.schedule_writes import ScheduleEvent, ScheduleKey, ScheduleWrite, ScheduleWritten
from duly.model.schedules import Schedule, ScheduleId
from duly.stores.arguments import checked
from duly.stores.port import Capabilities
from duly.stores.sql.db import Db
from duly.stores.sql.fast import index, planning
from duly.stores.sql.rows import documents, schedules
from duly.stores.sql.rows import schedule_events as events
from duly.stores.sql.source import transact
from duly.stores.sql.verbs.dispatch import DispatchVerbs
from duly.stores.sql.verbs.monitoring import MonitoringVerbs
from duly.stores.sql.verbs.upkeep import UpkeepVerbs


@checked
class SqlStore(DispatchVerbs, MonitoringVerbs, UpkeepVerbs):
    """The verbs of the port on one relational database."""

    @property
    def capabilities(self) -> Capabilities:
        """Return the capabilities; only notifications depend on the database."""
        return Capabilities(
            joins_transaction=True,
            many_processes=True,
            has_clock=True,
            notifies=self._dialect.passes_messages and self._options.notifications,
        )

    async def now_ms(self) -> int:
        """Return the time of the clock that decides what is due."""
        return await self._run(Db.now_ms)

    async def get_document(self, collection: str, scope: str, name: str) -> Document | None:
        """Return one document, or None."""
        return await self._run(documents.get_document, collection, scope, name)

    async def put_document(self, write: DocumentWrite) -> Written | Refused:
        """Store one document and its index entries."""
        return await self._transact(document_cases.put_document, write)

    async def delete_document(
        self, collection: str, scope: str, name: str, expected_version: int | None = None
    ) -> Document | Refused:
        """Remove one document and its index entries."""
        return await self._transact(
            document_cases.delete_document, collection, scope, name, expected_version
        )

    async def list_documents(
        self, collection: str, scope: str, *, prefix: str = "", after: str = "", limit: int = 100
    ) -> list[Document]:
        """Return one page of a scope's documents by name."""
        return await self._run(
            documents.list_documents, collection, scope, prefix=prefix, after=after, limit=limit
        )

    async def count_documents(self, collection: str, scope: str) -> int:
        """Return the number of documents in a scope."""
        return await self._run(documents.count_documents, collection, scope)

    async def find_documents(
        self, collection: str, attribute: str, value: str, limit: int = 100
    ) -> list[Document]:
        """Return documents of any scope by an indexed attribute."""
        return await self._run(documents.find_documents, collection, attribute, value, limit)

    async def get_schedule(self, key: ScheduleKey) -> Schedule | None:
        """Return one schedule, or None."""
        return await self._transact(schedule_cases.get_schedule, key)

    async def list_schedules(
        self, flow: str, scope: str, *, after: str = "", limit: int = 100
    ) -> list[Schedule]:
        """Return one page of a scope's schedules by name."""
        return await self._run(schedules.list_schedules, flow, scope, after=after, limit=limit)

    async def put_schedules(
        self, writes: Sequence[ScheduleWrite]
    ) -> list[ScheduleWritten | Refused]:
        """Store definitions with their index rows and events, in one transaction."""
        return await self._transact(schedule_cases.put_schedules, writes)

    def put_schedules_in(
        self, transaction: Any, writes: Sequence[ScheduleWrite]
    ) -> list[ScheduleWritten | Refused]:
        """Do the same inside the caller's own transaction."""
        return self._joined(transaction, transact, Ids(), schedule_cases.put_schedules, writes)

    async def delete_schedule(
        self, key: ScheduleKey, *, expected_version: int | None = None, by: str = "system"
    ) -> Schedule | Refused:
        """Remove a schedule with its index row and document."""
        return await self._transact(
            schedule_cases.delete_schedule, key, expected_version=expected_version, by=by
        )

    async def schedule_events(
        self, schedule_id: ScheduleId, limit: int = 100
    ) -> list[ScheduleEvent]:
        """Return the newest events of a schedule, oldest first."""
        return await self._run(events.schedule_events, schedule_id, limit)

    async def upsert(self, row: IndexRow) -> None:
        """Store an index row under its key."""
        await self._transact(index_cases.upsert, row)

    async def claim_due(
        self,
        now_ms: int | None = None,
        limit: int = CLAIM_LIMIT,
        flow: str | None = None,
        claim_id: str | None = None,
    ) -> list[Claimed]:
        """Claim due rows and advance them in one transaction."""
        return await self._fast_or_engine(
            index.claim_due, index_cases.claim_due, now_ms, limit, flow, claim_id
        )

    async def remove(self, key: ScheduleKey) -> None:
        """Remove the index row of a key."""
        await self._transact(index_cases.remove, key)

    async def list_rows(
        self, *, flow: str | None = None, until_ms: int | None = None, limit: int = 100
    ) -> list[IndexRow]:
        """Return index rows in claim order."""
        return await self._run(index.list_rows, flow=flow, until_ms=until_ms, limit=limit)

    async def list_quarantined(self, limit: int = 100) -> list[Quarantined]:
        """Return rows that cannot be evaluated."""
        return await self._run(index.list_quarantined, limit)

    async def reconcile(self, flows: Sequence[str] | None = None) -> ReconcileReport:
        """Rebuild the index from documents and ledger, one page per transaction."""
        total, declared = ReconcileReport(), frozenset(flows or ())
        since: Key | None = ()
        while since is not None:
            page = await self._transact_upkeep(reconcile.repair_rows, flows, since)
            total, declared, since = total + page.report, declared | page.flows, page.following
        since = ()
        while since is not None:
            orphans = await self._transact_upkeep(reconcile.remove_orphans, declared, since)
            total += ReconcileReport(removed=orphans.removed)
            since = orphans.following
        return total

    async def plan_occurrences(self, request: PlanRequest) -> PlanReport:
        """Claim due rows, write their ledger rows and jobs, and advance them."""
        return await self._fast_or_engine(
            planning.plan_occurrences, planning_cases.plan_occurrences, request
        )

    async def find_schedule(self, schedule_id: ScheduleId) -> Schedule | None:
        """Return one schedule by its id, or None."""
        return await self._transact(schedule_cases.find_schedule, schedule_id)

    async def run_now(self, schedule_id: ScheduleId, request_id: str) -> Occurrence | None:
        """Create one extra occurrence."""
        return await self._transact(extra_cases.run_now, schedule_id, request_id)

    async def backfill(self, request: Backfill) -> BackfillReport | None:
        """Plan past times that did not run."""
        return await self._transact(extra_cases.backfill, request)

    async def pause_failing(self, schedule_id: ScheduleId) -> Schedule | None:
        """Pause a schedule whose last runs all failed."""
        return await self._transact(failing.pause_failing, schedule_id)

    async def index_health(self) -> IndexHealth:
        """Compare the number of stored and indexed schedules."""
        return await self._run_upkeep(index.index_health)
