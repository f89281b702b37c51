"""SQLite passes every suite."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import Session

from duly.clock import Clock
from duly.stores import open_store as open_by_url
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
from duly.testing.conformance.schedules.transactions import Begin


class SqliteBackend(StoreConformance):
    @pytest.fixture
    def url(self, sqlite_url: str) -> str:
        return sqlite_url

    @pytest.fixture
    def open_store(self, url: str) -> OpenStore:
        def opened(clock: Clock | None) -> Store:
            return open_by_url(url, clock=clock, allow_foreign_sqlite_writers=True)

        return opened


class TestArguments(SqliteBackend, ArgumentConformance):
    pass


class TestIndex(SqliteBackend, IndexConformance):
    pass


class TestIndexRows(SqliteBackend, StoreIndexConformance):
    pass


class TestDocuments(SqliteBackend, DocumentConformance):
    pass


class TestSchedules(SqliteBackend, ScheduleConformance):
    pass


class TestJobs(SqliteBackend, JobConformance):
    pass


class TestFairness(SqliteBackend, FairnessConformance):
    pass


class TestUpkeep(SqliteBackend, UpkeepConformance):
    pass


class TestLocks(SqliteBackend, LockConformance):
    pass


class TestMonitoring(SqliteBackend, MonitoringConformance):
    pass


class TestPlanning(SqliteBackend, PlanningConformance):
    pass


class SqliteCallers(SqliteBackend):
    @pytest.fixture(params=[Engine.connect, Session], ids=["connection", "session"])
    def begin(self, url: str, request: pytest.FixtureRequest) -> Begin:
        @contextmanager
        def begun() -> Iterator[Any]:
            engine = create_engine(url)
            try:
                with request.param(engine) as caller, caller.begin():
                    yield caller
            finally:
                engine.dispose()

        return begun


class TestTransactions(SqliteCallers, TransactionConformance):
    pass


class TestJobTransactions(SqliteCallers, JobTransactionConformance):
    pass


class TestProcesses(SqliteBackend, ProcessConformance):
    pass


class TestJobProcesses(SqliteBackend, JobProcessConformance):
    pass


class TestPlanProcesses(SqliteBackend, PlanProcessConformance):
    pass


class TestDispatches(SqliteBackend, DispatchConformance):
    pass


class TestDispatchProcesses(SqliteBackend, DispatchProcessConformance):
    pass
