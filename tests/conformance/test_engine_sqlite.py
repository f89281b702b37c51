"""SQLite passes the suites without fast paths, using only the engine."""

import pytest

from duly.clock import Clock
from duly.stores import open_store as open_by_url
from duly.stores.port import Store
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


class SqliteEngine(SqliteBackend):
    @pytest.fixture
    def open_store(self, url: str) -> OpenStore:
        def opened(clock: Clock | None) -> Store:
            return open_by_url(
                url, clock=clock, allow_foreign_sqlite_writers=True, fast_paths=False
            )

        return opened


class TestDispatches(SqliteEngine, DispatchConformance):
    pass


class TestDocuments(SqliteEngine, DocumentConformance):
    pass


class TestFairness(SqliteEngine, FairnessConformance):
    pass


class TestIndex(SqliteEngine, IndexConformance):
    pass


class TestIndexRows(SqliteEngine, StoreIndexConformance):
    pass


class TestJobs(SqliteEngine, JobConformance):
    pass


class TestLocks(SqliteEngine, LockConformance):
    pass


class TestPlanning(SqliteEngine, PlanningConformance):
    pass


class TestSchedules(SqliteEngine, ScheduleConformance):
    pass


class TestUpkeep(SqliteEngine, UpkeepConformance):
    pass
