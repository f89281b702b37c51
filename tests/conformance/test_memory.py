"""The memory store passes every suite."""

import msgspec
import pytest

from duly.errors import InvalidInput
from duly.ledger import OccurrenceState
from duly.store import Store
from duly.stores import MemoryStore
from duly.stores.memory.tables import LedgerEntry
from duly.testing import ManualClock
from duly.testing.conformance import (
    DocumentConformance,
    FairnessConformance,
    IndexConformance,
    JobConformance,
    JobProcessConformance,
    JobTransactionConformance,
    LockConformance,
    OpenStore,
    PlanningConformance,
    PlanProcessConformance,
    ProcessConformance,
    ScheduleConformance,
    StoreConformance,
    TransactionConformance,
)
from duly.testing.conformance.plan_samples import only_occurrence, plan
from duly.testing.conformance.samples import a_write, put
from duly.testing.conformance.suite import case


class MemoryBackend(StoreConformance):
    @pytest.fixture
    def open_store(self) -> OpenStore:
        return MemoryStore


class TestIndex(MemoryBackend, IndexConformance):
    pass


class TestDocuments(MemoryBackend, DocumentConformance):
    pass


class TestSchedules(MemoryBackend, ScheduleConformance):
    pass


class TestJobs(MemoryBackend, JobConformance):
    pass


class TestFairness(MemoryBackend, FairnessConformance):
    pass


class TestLocks(MemoryBackend, LockConformance):
    pass


class TestPlanning(MemoryBackend, PlanningConformance):
    @case
    async def test_withdrawn_time_is_planned_again(self, clock: ManualClock) -> None:
        """Put there by hand until an edit can do it."""
        store = MemoryStore(clock)
        (written,) = await put(store, a_write())
        assert written.row is not None
        clock.advance(hours=1)
        await plan(store)
        (key, entry), *_ = store._tables.ledger.items()
        withdrawn = msgspec.structs.replace(entry.occurrence, state=OccurrenceState.WITHDRAWN)
        store._tables.ledger[key] = LedgerEntry(withdrawn)
        store._tables.put_row(written.row)
        assert (await plan(store)).planned == 1
        occurrence = await only_occurrence(store)
        assert occurrence.state is OccurrenceState.PLANNED
        assert occurrence.job_id not in (None, withdrawn.job_id)


class TestTransactions(MemoryBackend, TransactionConformance):
    pass


class TestProcesses(MemoryBackend, ProcessConformance):
    pass


class TestJobTransactions(MemoryBackend, JobTransactionConformance):
    def test_there_is_nothing_to_join(self, store: Store) -> None:
        with pytest.raises(InvalidInput):
            store.insert_jobs_in(object(), [])


class TestJobProcesses(MemoryBackend, JobProcessConformance):
    pass


class TestPlanProcesses(MemoryBackend, PlanProcessConformance):
    pass
