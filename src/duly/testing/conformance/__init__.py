"""Suites that every store passes: subclass them and give one fixture.

`open_store` gives a function from a clock (None: the store's own) to a new, empty Store. Call
pytest.register_assert_rewrite("duly.testing.conformance") before importing this, for readable
failures. The suites of processes also want a `url` that others open the same database by, those of
transactions a `begin`.
"""

from duly.testing.conformance.arguments import ArgumentConformance
from duly.testing.conformance.dispatch_processes import DispatchProcessConformance
from duly.testing.conformance.dispatches import DispatchConformance
from duly.testing.conformance.documents import DocumentConformance
from duly.testing.conformance.glass import GlassConformance
from duly.testing.conformance.index import IndexConformance
from duly.testing.conformance.index_rows import StoreIndexConformance
from duly.testing.conformance.job_processes import JobProcessConformance
from duly.testing.conformance.job_transactions import JobTransactionConformance
from duly.testing.conformance.jobs import FairnessConformance, JobConformance, LockConformance
from duly.testing.conformance.plan_processes import PlanProcessConformance
from duly.testing.conformance.planning import PlanningConformance
from duly.testing.conformance.processes import ProcessConformance
from duly.testing.conformance.schedules import ScheduleConformance
from duly.testing.conformance.suite import OpenStore, StoreConformance
from duly.testing.conformance.transactions import TransactionConformance
from duly.testing.conformance.upkeep_suite import UpkeepConformance

__all__ = [
    "ArgumentConformance",
    "DispatchConformance",
    "DispatchProcessConformance",
    "DocumentConformance",
    "FairnessConformance",
    "GlassConformance",
    "IndexConformance",
    "JobConformance",
    "JobProcessConformance",
    "JobTransactionConformance",
    "LockConformance",
    "OpenStore",
    "PlanProcessConformance",
    "PlanningConformance",
    "ProcessConformance",
    "ScheduleConformance",
    "StoreConformance",
    "StoreIndexConformance",
    "TransactionConformance",
    "UpkeepConformance",
]
