"""Fixtures for all tests: real servers, and the table of what each backend passed."""

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
"""A hook of tests/conformance: where tests run in workers, only this file is read outside."""


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of this test run share, and no other run."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def postgres_server(run_folder: Path) -> Iterator[PostgresServer]:
    """A real server: the one named in the environment, else one started for this run."""
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
    """A database with the schema in it, to be copied: that is cheaper than to make it anew."""
    file = tmp_path_factory.mktemp("made") / "made.db"
    asyncio.run(open_store(f"sqlite:///{file}").close())
    return file


@pytest.fixture(autouse=True)
def close_engines() -> Iterator[None]:
    """Close the connections of stores that a test left open.

    Python 3.13 warns when such a connection is collected, which is some time later, in another
    test.
    """
    stores: list[Transactions] = []
    begin = Transactions.__init__

    def noted(self: Transactions, dialect: Dialect, url: URL, *rest: Any, **named: Any) -> None:
        stores.append(self)
        begin(self, dialect, url, *rest, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Transactions, "__init__", noted)
        yield
    for store in stores:
        if hasattr(store, "_engine"):  # The constructor may have failed before.
            store._engine.dispose()


@pytest.fixture
def sqlite_url(sqlite_file: Path, tmp_path: Path) -> str:
    """A database of its own with nothing in its tables."""
    return f"sqlite:///{shutil.copy(sqlite_file, tmp_path / 'duly.db')}"


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """An empty database of its own."""
    url = postgres_server.create()
    yield url
    postgres_server.drop(url)
