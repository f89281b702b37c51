"""The memory store passes every suite without its lock, with commits that may be refused."""

from functools import partial

import pytest

from duly.errors import InvalidInput
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
from duly.testing.optimistic import OptimisticStore, PortFaults

REFUSED = PortFaults(refused=0.2)
"""One commit in five is refused; the use case runs again and must answer the same."""


pytestmark = pytest.mark.extended


class OptimisticBackend(StoreConformance):
    @pytest.fixture
    def open_store(self) -> OpenStore:
        return partial(OptimisticStore, faults=REFUSED)


class TestArguments(OptimisticBackend, ArgumentConformance):
    pass


class TestIndex(OptimisticBackend, IndexConformance):
    pass


class TestIndexRows(OptimisticBackend, StoreIndexConformance):
    pass


class TestDocuments(OptimisticBackend, DocumentConformance):
    pass


class TestSchedules(OptimisticBackend, ScheduleConformance):
    pass


class TestJobs(OptimisticBackend, JobConformance):
    pass


class TestFairness(OptimisticBackend, FairnessConformance):
    pass


class TestUpkeep(OptimisticBackend, UpkeepConformance):
    pass


class TestLocks(OptimisticBackend, LockConformance):
    pass


class TestMonitoring(OptimisticBackend, MonitoringConformance):
    pass


class TestPlanning(OptimisticBackend, PlanningConformance):
    pass


class TestTransactions(OptimisticBackend, TransactionConformance):
    pass


class TestProcesses(OptimisticBackend, ProcessConformance):
    pass


class TestJobTransactions(OptimisticBackend, JobTransactionConformance):
    def test_memory_joins_no_transaction(self, store: Store) -> None:
        with pytest.raises(InvalidInput):
            store.insert_jobs_in(object(), [])


class TestJobProcesses(OptimisticBackend, JobProcessConformance):
    pass


class TestPlanProcesses(OptimisticBackend, PlanProcessConformance):
    pass


class TestDispatches(OptimisticBackend, DispatchConformance):
    pass


class TestDispatchProcesses(OptimisticBackend, DispatchProcessConformance):
    pass
