"""Fixtures for all tests: database servers, and the conformance results by backend."""

import asyncio
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL

from duly.stores import open_store
from duly.stores.sql.dialects.dialect import Dialect
from duly.stores.sql.transactions import Transactions
from tests.conformance.table import pytest_terminal_summary
from tests.missing import missing_tool
from tests.servers import NO_SERVER, URL_VARIABLE, PostgresServer, find_binaries, shared_server

__all__ = ["pytest_terminal_summary"]
"""A hook of tests/conformance. With xdist, the controller process reads only this file."""


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder shared by all workers of this test run, and by no other run."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def postgres_server(run_folder: Path) -> Iterator[PostgresServer]:
    """Yield the server named in the environment, else one started for this run."""
    named, binaries = os.environ.get(URL_VARIABLE), find_binaries()
    if named:
        yield PostgresServer(named)
    elif binaries is not None:
        with shared_server(run_folder, binaries) as server:
            yield server
    else:
        missing_tool(NO_SERVER)


@pytest.fixture(scope="session")
def sqlite_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a database file with the schema. Copying it is cheaper than creating each one."""
    file = tmp_path_factory.mktemp("made") / "made.db"
    asyncio.run(open_store(f"sqlite:///{file}").close())
    return file


@pytest.fixture(autouse=True)
def close_engines() -> Iterator[None]:
    """Close the connections of stores that a test left open.

    Python 3.13 warns when an open connection is garbage-collected, which may happen during a
    later test.
    """
    stores: list[Transactions] = []
    begin = Transactions.__init__

    def recorded(self: Transactions, dialect: Dialect, url: URL, *rest: Any, **named: Any) -> None:
        stores.append(self)
        begin(self, dialect, url, *rest, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Transactions, "__init__", recorded)
        yield
    for store in stores:
        if hasattr(store, "_engine"):  # False if the constructor failed.
            store._engine.dispose()


@pytest.fixture
def sqlite_url(sqlite_file: Path, tmp_path: Path) -> str:
    """Return the URL of an empty SQLite database with the schema."""
    return f"sqlite:///{shutil.copy(sqlite_file, tmp_path / 'duly.db')}"


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """Yield the URL of an empty PostgreSQL database without a schema."""
    url = postgres_server.create()
    yield url
    postgres_server.drop(url)
