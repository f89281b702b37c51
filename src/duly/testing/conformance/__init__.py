"""Suites that every store passes: subclass them and give one fixture.

`open_store` gives a function from a clock (None: the store's own) to a new, empty Store. Call
pytest.register_assert_rewrite("duly.testing.conformance") before importing this, for readable
failures. ProcessConformance also wants a `url` that other processes open the same database by.
"""

from duly.testing.conformance.documents import DocumentConformance
from duly.testing.conformance.index import IndexConformance
from duly.testing.conformance.processes import ProcessConformance
from duly.testing.conformance.schedules import ScheduleConformance
from duly.testing.conformance.suite import OpenStore, StoreConformance
from duly.testing.conformance.transactions import TransactionConformance

__all__ = [
    "DocumentConformance",
    "IndexConformance",
    "OpenStore",
    "ProcessConformance",
    "ScheduleConformance",
    "StoreConformance",
    "TransactionConformance",
]
