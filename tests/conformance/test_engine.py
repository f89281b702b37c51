"""SQLite passes the suites without fast paths: the engine alone does the work."""

import pytest

from duly.clock import Clock
from duly.store import Store
from duly.stores import open_store as open_by_url
from duly.testing.conformance import (
    DispatchConformance,
    DocumentConformance,
    FairnessConformance,
    IndexConformance,
    JobConformance,
    LockConformance,
    OpenStore,
    PlanningConformance,
    ScheduleConformance,
    StoreIndexConformance,
    UpkeepConformance,
)
from tests.conformance.test_sqlite import SqliteBackend

pytestmark = pytest.mark.extended


class EngineBackend(SqliteBackend):
    @pytest.fixture
    def open_store(self, url: str) -> OpenStore:
        def opened(clock: Clock | None) -> Store:
            return open_by_url(
                url, clock=clock, allow_foreign_sqlite_writers=True, fast_paths=False
            )

        return opened


class TestDispatches(EngineBackend, DispatchConformance):
    pass


class TestDocuments(EngineBackend, DocumentConformance):
    pass


class TestFairness(EngineBackend, FairnessConformance):
    pass


class TestIndex(EngineBackend, IndexConformance):
    pass


class TestIndexRows(EngineBackend, StoreIndexConformance):
    pass


class TestJobs(EngineBackend, JobConformance):
    pass


class TestLocks(EngineBackend, LockConformance):
    pass


class TestPlanning(EngineBackend, PlanningConformance):
    pass


class TestSchedules(EngineBackend, ScheduleConformance):
    pass


class TestUpkeep(EngineBackend, UpkeepConformance):
    pass
