"""SQLite passes every suite."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine

from duly.clock import Clock
from duly.store import Store
from duly.stores import open_store as open_by_url
from duly.testing.conformance import (
    DocumentConformance,
    IndexConformance,
    OpenStore,
    ProcessConformance,
    ScheduleConformance,
    StoreConformance,
    TransactionConformance,
)
from duly.testing.conformance.transactions import Begin


class SqliteBackend(StoreConformance):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path}/duly.db"

    @pytest.fixture
    def open_store(self, url: str) -> OpenStore:
        def opened(clock: Clock | None) -> Store:
            return open_by_url(url, clock=clock, allow_foreign_sqlite_writers=True)

        return opened


class TestIndex(SqliteBackend, IndexConformance):
    pass


class TestDocuments(SqliteBackend, DocumentConformance):
    pass


class TestSchedules(SqliteBackend, ScheduleConformance):
    pass


class TestTransactions(SqliteBackend, TransactionConformance):
    @pytest.fixture
    def begin(self, url: str) -> Begin:
        @contextmanager
        def begun() -> Iterator[Connection]:
            engine = create_engine(url)
            try:
                with engine.begin() as connection:
                    yield connection
            finally:
                engine.dispose()

        return begun


class TestProcesses(SqliteBackend, ProcessConformance):
    pass
