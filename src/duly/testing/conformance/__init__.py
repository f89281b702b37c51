"""Conformance suites for stores: subclass them and override one fixture.

`open_store` returns a function from a clock (None: the store's own) to a new, empty Store. Process
suites also need `url`, by which other processes open the same database; transaction suites need
`begin`. Call pytest.register_assert_rewrite("duly.testing.conformance") before the import, for
readable failures.
"""

from duly.testing.conformance.arguments.refusals import ArgumentConformance
from duly.testing.conformance.dispatch.processes import DispatchProcessConformance
from duly.testing.conformance.dispatch.suite import DispatchConformance
from duly.testing.conformance.documents import DocumentConformance
from duly.testing.conformance.index.processes import ProcessConformance
from duly.testing.conformance.index.store_rows import StoreIndexConformance
from duly.testing.conformance.index.suite import IndexConformance
from duly.testing.conformance.jobs.processes import JobProcessConformance
from duly.testing.conformance.jobs.suite import FairnessConformance, JobConformance, LockConformance
from duly.testing.conformance.jobs.transactions import JobTransactionConformance
from duly.testing.conformance.monitoring import MonitoringConformance
from duly.testing.conformance.planning.processes import PlanProcessConformance
from duly.testing.conformance.planning.suite import PlanningConformance
from duly.testing.conformance.schedules.suite import ScheduleConformance
from duly.testing.conformance.schedules.transactions import TransactionConformance
from duly.testing.conformance.suite import OpenStore, StoreConformance
from duly.testing.conformance.upkeep.suite import UpkeepConformance

GlassConformance = MonitoringConformance
"""The name in earlier releases."""

__all__ = [
    "ArgumentConformance",
    "DispatchConformance",
    "DispatchProcessConformance",
    "DocumentConformance",
    "FairnessConformance",
    "GlassConformance",
    "MonitoringConformance",
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
