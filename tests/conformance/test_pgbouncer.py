"""PostgreSQL behind PgBouncer in transaction mode passes the suites for the index and jobs.

Prepared statements are off and LISTEN uses a direct URL, as the documentation prescribes.
"""

import asyncio
import threading
from collections.abc import Iterator

import psycopg
import pytest

from duly.clock import Clock
from duly.stores import open_store as open_by_url
from duly.stores.port import Store
from duly.testing.conformance import (
    FairnessConformance,
    IndexConformance,
    JobConformance,
    LockConformance,
    OpenStore,
    StoreConformance,
    StoreIndexConformance,
)
from duly.testing.conformance.jobs.samples import a_job
from tests.conformance.emptied import Emptied
from tests.missing import missing_tool
from tests.pgbouncer import NO_POOLER, find_pooler, pooled_url

pytestmark = pytest.mark.extended

HEARD_S = 20.0


@pytest.fixture(scope="module")
def behind_url(emptied: Emptied) -> Iterator[str]:
    """Return the URL of the same database through a pooler."""
    program = find_pooler()
    if program is None:
        missing_tool(NO_POOLER)
    with pooled_url(emptied.url, program) as url:
        yield url


class PooledBackend(StoreConformance):
    @pytest.fixture
    def url(self, emptied: Emptied, behind_url: str) -> str:
        emptied.empty()
        return behind_url

    @pytest.fixture
    def open_store(self, url: str, emptied: Emptied) -> OpenStore:
        def opened(clock: Clock | None) -> Store:
            return open_by_url(
                url, clock=clock, prepared_statements=False, listen_url=emptied.url, connections=3
            )

        return opened


class TestIndex(PooledBackend, IndexConformance):
    pass


class TestIndexRows(PooledBackend, StoreIndexConformance):
    pass


class TestJobs(PooledBackend, JobConformance):
    pass


class TestFairness(PooledBackend, FairnessConformance):
    pass


class TestLocks(PooledBackend, LockConformance):
    pass


class TestNotices(PooledBackend):
    def test_notices_use_the_direct_url(self, store: Store) -> None:
        listening, heard = threading.Event(), threading.Event()

        def wake(hint: str) -> None:
            (listening if hint == "queue:*" else heard).set()

        end = store.listen(wake)
        try:
            assert listening.wait(HEARD_S)
            asyncio.run(store.insert_jobs([a_job()]))
            assert heard.wait(HEARD_S)
        finally:
            end()

    def test_the_pooler_shares_its_connections(self, url: str) -> None:
        """Proves that the suites above really ran through a pooler."""
        with psycopg.connect(url, autocommit=True) as one, psycopg.connect(url) as other:
            pids = [each.execute("SELECT pg_backend_pid()").fetchone() for each in (one, other)]
        assert pids[0] == pids[1], "the two clients did not share a server connection"
