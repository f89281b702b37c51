"""APScheduler 3 doing the same work: cron jobs that are all due, in its SQLAlchemy job store.

Only processing of due jobs is timed: reading them, passing each to an executor that returns at
once, computing the next time and storing it. Jobs are stored and made due beforehand.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice

from apscheduler.executors.base import BaseExecutor
from apscheduler.job import Job
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.base import BaseScheduler
from apscheduler.triggers.cron import CronTrigger
from sqlalchemy import Engine, bindparam, update

APSCHEDULER = "APScheduler"


def nothing() -> None:
    """Do nothing."""


class AtOnceExecutor(BaseExecutor):  # type: ignore[misc]
    """Counts jobs without running them, since running is not measured."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = 0

    def submit_job(self, _job: Job, _run_times: Sequence[datetime]) -> None:
        self.taken += 1

    def _do_submit_job(self, job: Job, run_times: Sequence[datetime]) -> None:
        raise NotImplementedError


class SteppedScheduler(BaseScheduler):  # type: ignore[misc]
    """A scheduler that processes due jobs on request instead of in a loop."""

    def wakeup(self) -> None:
        pass

    def step(self) -> None:
        self._process_jobs()

    def shutdown(self, wait: bool = True) -> None:
        super().shutdown(wait)


class Peer:
    """A number of cron jobs in one database."""

    def __init__(
        self, engine: Engine, tidy: str, expressions: Sequence[tuple[str, str]], count: int
    ) -> None:
        self.count = count
        self._engine = engine
        self._tidy = tidy
        self._executor = AtOnceExecutor()
        self._store = SQLAlchemyJobStore(engine=engine)
        self._scheduler = SteppedScheduler(
            jobstores={"default": self._store},
            executors={"default": self._executor},
            job_defaults={"misfire_grace_time": None, "coalesce": True},
            timezone=UTC,
        )
        self._scheduler.start()
        self._jobs = [
            self._scheduler.add_job(nothing, CronTrigger.from_crontab(expression, timezone=tz))
            for expression, tz in islice(cycle(expressions), count)
        ]

    def make_due(self) -> None:
        """Make all jobs due one second ago, as job.modify() does, in one transaction."""
        due_at = datetime.now(UTC) - timedelta(seconds=1)
        jobs = self._store.jobs_t
        statement = (
            update(jobs)
            .where(jobs.c.id == bindparam("job"))
            .values(next_run_time=bindparam("at"), job_state=bindparam("state"))
        )
        states = [job.__getstate__() | {"next_run_time": due_at} for job in self._jobs]
        with self._engine.begin() as connection:
            connection.execute(
                statement,
                [
                    {"job": state["id"], "at": due_at.timestamp(), "state": pickle.dumps(state)}
                    for state in states
                ],
            )
        with self._engine.connect() as connection:
            apart = connection.execution_options(isolation_level="AUTOCOMMIT")
            apart.exec_driver_sql(self._tidy)
        self._executor.taken = 0

    def fire(self) -> int:
        """Run one step of the scheduler; return how many jobs fired."""
        self._scheduler.step()
        return self._executor.taken

    def close(self) -> None:
        """Close its connections."""
        self._scheduler.shutdown()
