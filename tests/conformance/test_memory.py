"""The memory store passes every suite."""

import pytest

from duly.errors import InvalidInput
from duly.stores import MemoryStore
from duly.stores.port import Store
from duly.testing.conformance import (
    ArgumentConformance,
    DispatchConformance,
    DispatchProcessConformance,
    DocumentConformance,
    FairnessConformance,
    IndexConformance,
    JobConformance,
    JobProcessConformance,
    JobTransactionConformance,
    LockConformance,
    MonitoringConformance,
    OpenStore,
    PlanningConformance,
    PlanProcessConformance,
    ProcessConformance,
    ScheduleConformance,
    StoreConformance,
    StoreIndexConformance,
    TransactionConformance,
    UpkeepConformance,
)


class MemoryBackend(StoreConformance):
    @pytest.fixture
    def open_store(self) -> OpenStore:
        return MemoryStore


class TestArguments(MemoryBackend, ArgumentConformance):
    pass


class TestIndex(MemoryBackend, IndexConformance):
    pass


class TestIndexRows(MemoryBackend, StoreIndexConformance):
    pass


class TestDocuments(MemoryBackend, DocumentConformance):
    pass


class TestSchedules(MemoryBackend, ScheduleConformance):
    pass


class TestJobs(MemoryBackend, JobConformance):
    pass


class TestFairness(MemoryBackend, FairnessConformance):
    pass


class TestUpkeep(MemoryBackend, UpkeepConformance):
    pass


class TestLocks(MemoryBackend, LockConformance):
    pass


class TestMonitoring(MemoryBackend, MonitoringConformance):
    pass


class TestPlanning(MemoryBackend, PlanningConformance):
    pass


class TestTransactions(MemoryBackend, TransactionConformance):
    pass


class TestProcesses(MemoryBackend, ProcessConformance):
    pass


class TestJobTransactions(MemoryBackend, JobTransactionConformance):
    def test_memory_joins_no_transaction(self, store: Store) -> None:
        with pytest.raises(InvalidInput):
            store.insert_jobs_in(object(), [])


class TestJobProcesses(MemoryBackend, JobProcessConformance):
    pass


class TestPlanProcesses(MemoryBackend, PlanProcessConformance):
    pass


class TestDispatches(MemoryBackend, DispatchConformance):
    pass


class TestDispatchProcesses(MemoryBackend, DispatchProcessConformance):
    pass
