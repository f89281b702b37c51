"""PostgreSQL passes every suite."""

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
from duly.testing.conformance.index.processes import Peers
from duly.testing.conformance.samples import START_MS
from duly.testing.conformance.schedules.transactions import Begin
from duly.testing.peer import CLAIMING
from tests.conformance.emptied import Emptied


class PostgresBackend(StoreConformance):
    @pytest.fixture
    def url(self, emptied: Emptied) -> str:
        return emptied.empty()

    @pytest.fixture
    def open_store(self, url: str) -> OpenStore:
        def opened(clock: Clock | None) -> Store:
            return open_by_url(url, clock=clock)

        return opened


class TestArguments(PostgresBackend, ArgumentConformance):
    pass


class TestIndex(PostgresBackend, IndexConformance):
    pass


class TestIndexRows(PostgresBackend, StoreIndexConformance):
    pass


class TestDocuments(PostgresBackend, DocumentConformance):
    pass


class TestSchedules(PostgresBackend, ScheduleConformance):
    pass


class TestJobs(PostgresBackend, JobConformance):
    pass


class TestFairness(PostgresBackend, FairnessConformance):
    pass


class TestUpkeep(PostgresBackend, UpkeepConformance):
    pass


class TestLocks(PostgresBackend, LockConformance):
    pass


class TestMonitoring(PostgresBackend, MonitoringConformance):
    pass


class TestPlanning(PostgresBackend, PlanningConformance):
    pass


class PostgresCallers(PostgresBackend):
    @pytest.fixture(params=[Engine.connect, Session], ids=["connection", "session"])
    def begin(self, url: str, request: pytest.FixtureRequest) -> Begin:
        @contextmanager
        def begun() -> Iterator[Any]:
            engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:", 1))
            try:
                with request.param(engine) as caller, caller.begin():
                    yield caller
            finally:
                engine.dispose()

        return begun


class TestTransactions(PostgresCallers, TransactionConformance):
    pass


class TestJobTransactions(PostgresCallers, JobTransactionConformance):
    pass


class TestProcesses(PostgresBackend, ProcessConformance):
    def test_claim_skips_rows_that_another_holds(self, store: Store, peers: Peers) -> None:
        self.upsert(store, "a", "b", "c")
        (holder,) = peers(1)
        holder.ask("hold")
        assert holder.ask("claim", now_ms=START_MS, limit=1) == CLAIMING
        claimed = self.runner.run(store.claim_due(START_MS))
        assert [each.name for each in claimed] == ["b", "c"]
        assert [each["name"] for each in holder.ask("go on")] == ["a"]


class TestJobProcesses(PostgresBackend, JobProcessConformance):
    pass


class TestPlanProcesses(PostgresBackend, PlanProcessConformance):
    pass


class TestDispatches(PostgresBackend, DispatchConformance):
    pass


class TestDispatchProcesses(PostgresBackend, DispatchProcessConformance):
    pass
