"""Limits hold on PostgreSQL also with plans that repeat a sub-select for each row.

The plan depends on statistics, so these tests turn the other kinds of plan off.
"""

from urllib.parse import quote, urlencode

import pytest

from duly.testing.conformance import UpkeepConformance
from duly.testing.conformance.jobs.inserts import InsertCases
from duly.testing.conformance.jobs.keys import KeyCases
from duly.testing.conformance.jobs.sweeps import (
    LeaseEndCases,
    LossCases,
    PromotionCases,
    PruneCases,
)
from duly.testing.conformance.jobs.workers import WorkerCases
from tests.conformance.emptied import Emptied
from tests.conformance.test_postgres import PostgresBackend

pytestmark = pytest.mark.extended

_OFF = ("hashjoin", "mergejoin", "hashagg", "sort", "material", "memoize")


class LoopingBackend(PostgresBackend):
    @pytest.fixture
    def url(self, emptied: Emptied) -> str:
        options = " ".join(f"-c enable_{each}=off" for each in _OFF)
        return f"{emptied.empty()}?{urlencode({'options': options}, quote_via=quote)}"


class TestUpkeep(LoopingBackend, UpkeepConformance):
    pass


class TestJobs(
    LoopingBackend,
    InsertCases,
    KeyCases,
    LeaseEndCases,
    LossCases,
    PromotionCases,
    PruneCases,
    WorkerCases,
):
    pass
