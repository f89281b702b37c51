"""Assertion rewriting for the suites, and a database for those that use a server.

The suites are part of the package, so pytest rewrites their assertions only if they are registered.
"""

from collections.abc import Iterator

import pytest

from tests.conformance.emptied import Emptied
from tests.servers import PostgresServer

pytest.register_assert_rewrite("duly.testing.conformance")


@pytest.fixture(scope="module")
def emptied(postgres_server: PostgresServer) -> Iterator[Emptied]:
    made = Emptied(postgres_server.create())
    yield made
    made.close()
    postgres_server.drop(made.url)
