"""PostgreSQL passes the suites without fast paths, using only the engine."""

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
from tests.conformance.test_postgres import PostgresBackend

pytestmark = pytest.mark.extended


class PostgresEngine(PostgresBackend):
    @pytest.fixture
    def open_store(self, url: str) -> OpenStore:
        def opened(clock: Clock | None) -> Store:
            return open_by_url(url, clock=clock, fast_paths=False)

        return opened


class TestDispatches(PostgresEngine, DispatchConformance):
    pass


class TestDocuments(PostgresEngine, DocumentConformance):
    pass


class TestFairness(PostgresEngine, FairnessConformance):
    pass


class TestIndex(PostgresEngine, IndexConformance):
    pass


class TestIndexRows(PostgresEngine, StoreIndexConformance):
    pass


class TestJobs(PostgresEngine, JobConformance):
    pass


class TestLocks(PostgresEngine, LockConformance):
    pass


class TestPlanning(PostgresEngine, PlanningConformance):
    pass


class TestSchedules(PostgresEngine, ScheduleConformance):
    pass


class TestUpkeep(PostgresEngine, UpkeepConformance):
    pass
