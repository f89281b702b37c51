"""MariaDB: what is refused when a connection is opened, and walks beside the memory store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url

from duly import BackendUnavailable, Duly, Flow, InvalidInput, open_store
from duly.stores.sql.dialects.mysql.connections import COLLATION, MIN_PACKET, check_server
from tests.mariadb import NO_SERVER, MariadbServer, find_server, started_server
from tests.missing import missing_tool
from tests.property.test_job_walk import walk_with as walk_jobs
from tests.property.test_plan_walk import rising_ids
from tests.property.test_plan_walk import walk_with as walk_plans

__all__ = ["rising_ids"]
"""A fixture for every test here: walks compare jobs by the order of their ids."""


@pytest.fixture(scope="module")
def server() -> Iterator[MariadbServer]:
    binary = find_server()
    if binary is None:
        missing_tool(NO_SERVER)
    with started_server(binary) as found:
        yield found


@pytest.fixture
def url(server: MariadbServer) -> Iterator[str]:
    made = server.create()
    yield made
    server.drop(made)


@pytest.mark.parametrize(
    ("version", "collation", "is_read_only", "packet", "message"),
    [
        ("8.4.2", COLLATION, False, MIN_PACKET, "is MySQL 8.4.2, on which Duly"),
        ("10.5.9-MariaDB", COLLATION, False, MIN_PACKET, "Duly needs 10.6 or newer"),
        ("10.11.1-MariaDB", "utf8mb4_general_ci", False, MIN_PACKET, "run: ALTER DATABASE"),
        ("10.11.1-MariaDB", COLLATION, False, MIN_PACKET - 1, "max_allowed_packet is"),
        ("11.4.1-MariaDB", COLLATION, True, MIN_PACKET, "connect to the primary"),
    ],
)
def test_unsuitable_servers_are_refused(
    version: str, collation: str, is_read_only: bool, packet: int, message: str
) -> None:
    with pytest.raises(BackendUnavailable, match=message):
        check_server(version, collation, is_read_only=is_read_only, packet=packet)


def test_suitable_servers_are_accepted() -> None:
    check_server("10.6.0-MariaDB-log", COLLATION, is_read_only=False, packet=MIN_PACKET)


@pytest.mark.extended
def test_another_collation_is_refused_at_start(server: MariadbServer, url: str) -> None:
    name = url.rpartition("/")[2]
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"ALTER DATABASE {name} COLLATE utf8mb4_general_ci")
    with pytest.raises(BackendUnavailable, match=f"Duly needs {COLLATION}; run: ALTER DATABASE"):
        open_store(url)


@pytest.mark.extended
def test_missing_rights_are_reported_at_start(server: MariadbServer, url: str) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE OR REPLACE USER reader@'%'")
        cursor.execute(f"GRANT SELECT ON {url.rpartition('/')[2]}.* TO reader@'%'")
    with pytest.raises(BackendUnavailable, match="command denied to user 'reader'"):
        open_store(url.replace("duly@", "reader@", 1))


@pytest.mark.extended
def test_callers_must_read_committed_rows(url: str) -> None:
    flow = Flow("mail")

    @flow.action
    async def send() -> None: ...

    app = Duly(url, flows=[flow])
    engine = create_engine(make_url(url).set(drivername="mysql+pymysql"))
    try:
        with engine.begin() as connection, pytest.raises(InvalidInput, match="READ COMMITTED"):
            app.client.enqueue_in(connection, send)
    finally:
        engine.dispose()
        asyncio.run(app.close())


@pytest.mark.extended
def test_the_schema_can_be_created_again(url: str) -> None:
    for _ in range(2):
        asyncio.run(open_store(url).close())


@pytest.mark.extended
@pytest.mark.parametrize("seed", range(3))
def test_jobs_walk_beside_the_memory_store(url: str, seed: int) -> None:
    asyncio.run(walk_jobs(url, seed, fast_paths=False))


@pytest.mark.extended
@pytest.mark.parametrize("seed", range(3))
def test_plans_walk_beside_the_memory_store(url: str, seed: int) -> None:
    asyncio.run(walk_plans(url, seed, fast_paths=False))
