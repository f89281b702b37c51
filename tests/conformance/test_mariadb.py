"""MariaDB passes every suite; the engine alone does the work."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.engine import make_url
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
from tests.mariadb import NO_SERVER, MariadbServer, find_server, started_server
from tests.missing import missing_tool

pytestmark = pytest.mark.extended


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariadbServer]:
    binary = find_server()
    if binary is None:
        missing_tool(NO_SERVER)
    with started_server(binary) as server:
        yield server


class Emptied:
    """A database with the schema; emptying it is cheaper than creating one for every test."""

    def __init__(self, server: MariadbServer) -> None:
        self.url = server.create()
        asyncio.run(open_by_url(self.url).close())
        self._connection = server.connect(self.url.rpartition("/")[2])
        with self._connection.cursor() as cursor:
            cursor.execute("SHOW TABLES LIKE 'duly%'")
            names = [name for (name,) in cursor.fetchall()]
        kept = ("duly_schema", "duly_guards", "duly_ledger_counts")
        deletes = [f"DELETE FROM {name}" for name in names if name not in kept]  # noqa: S608
        # Removing from the ledger leaves counts behind, which cancel out.
        deletes += ["DELETE FROM duly_ledger_counts", "UPDATE duly_schema SET tz_version = NULL"]
        self._statement = "; ".join(["SET foreign_key_checks = 0", *deletes])

    def empty(self) -> str:
        with self._connection.cursor() as cursor:
            cursor.execute(self._statement)
            while cursor.nextset():
                pass
        return self.url

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="module")
def emptied_mariadb(mariadb_server: MariadbServer) -> Iterator[Emptied]:
    made = Emptied(mariadb_server)
    yield made
    made.close()
    mariadb_server.drop(made.url)


class MariadbBackend(StoreConformance):
    @pytest.fixture
    def url(self, emptied_mariadb: Emptied) -> str:
        return emptied_mariadb.empty()

    @pytest.fixture
    def open_store(self, url: str) -> OpenStore:
        def opened(clock: Clock | None) -> Store:
            return open_by_url(url, clock=clock)

        return opened


class TestArguments(MariadbBackend, ArgumentConformance):
    pass


class TestIndex(MariadbBackend, IndexConformance):
    pass


class TestIndexRows(MariadbBackend, StoreIndexConformance):
    pass


class TestDocuments(MariadbBackend, DocumentConformance):
    pass


class TestSchedules(MariadbBackend, ScheduleConformance):
    pass


class TestJobs(MariadbBackend, JobConformance):
    pass


class TestFairness(MariadbBackend, FairnessConformance):
    pass


class TestLocks(MariadbBackend, LockConformance):
    pass


class TestPlanning(MariadbBackend, PlanningConformance):
    pass


class TestDispatches(MariadbBackend, DispatchConformance):
    pass


class TestMonitoring(MariadbBackend, MonitoringConformance):
    pass


class TestUpkeep(MariadbBackend, UpkeepConformance):
    pass


class MariadbCallers(MariadbBackend):
    @pytest.fixture(params=[Engine.connect, Session], ids=["connection", "session"])
    def begin(self, url: str, request: pytest.FixtureRequest) -> Begin:
        @contextmanager
        def begun() -> Iterator[Any]:
            address = make_url(url).set(drivername="mysql+pymysql")
            engine = create_engine(address, isolation_level="READ COMMITTED")
            try:
                with request.param(engine) as caller, caller.begin():
                    yield caller
            finally:
                engine.dispose()

        return begun


class TestTransactions(MariadbCallers, TransactionConformance):
    pass


class TestJobTransactions(MariadbCallers, JobTransactionConformance):
    pass


class TestProcesses(MariadbBackend, ProcessConformance):
    def test_claim_passes_rows_that_another_holds(self, store: Store, peers: Peers) -> None:
        self.upsert(store, "a", "b", "c")
        (holder,) = peers(1)
        holder.ask("hold")
        assert holder.ask("claim", now_ms=START_MS, limit=1) == CLAIMING
        claimed = self.runner.run(store.claim_due(START_MS))
        assert [each.name for each in claimed] == ["b", "c"]
        assert [each["name"] for each in holder.ask("go on")] == ["a"]


class TestJobProcesses(MariadbBackend, JobProcessConformance):
    pass


class TestPlanProcesses(MariadbBackend, PlanProcessConformance):
    pass


class TestDispatchProcesses(MariadbBackend, DispatchProcessConformance):
    pass
