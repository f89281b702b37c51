"""Fixtures for tests that run on every backend."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from duly.stores import open_store
from tests.servers import PostgresServer


@pytest.fixture(scope="module")
def filled_url(postgres_server: PostgresServer) -> Iterator[str]:
    """Create a database with the schema, shared by the tests of a module."""
    url = postgres_server.create()
    asyncio.run(open_store(url).close())
    yield url
    postgres_server.drop(url)


@pytest.fixture
def emptied_url(filled_url: str) -> str:
    """Return the URL of that database after truncating its job tables."""
    with psycopg.connect(filled_url) as connection:
        connection.execute(
            "TRUNCATE duly_jobs, duly_job_events, duly_job_line, duly_job_marks, duly_idempotency, "
            "duly_queues, duly_queue_tokens, duly_workers"
        )
    return filled_url


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def any_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of each backend in turn."""
    if request.param == "memory":
        return "memory:"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/work.db"
    found: str = request.getfixturevalue("emptied_url")
    return found


@pytest.fixture
def clean_url(any_url: str) -> str:
    """Return the URL of each backend without schedules and documents of other tests."""
    if any_url.startswith("postgresql"):
        with psycopg.connect(any_url) as connection:
            for table in ("duly_schedule_index", "duly_schedule_rules", "duly_resources"):
                connection.execute(sql.SQL("TRUNCATE {} CASCADE").format(sql.Identifier(table)))
            connection.execute("TRUNCATE duly_occurrences, duly_schedule_events")
    return any_url
