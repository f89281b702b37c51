"""APScheduler 3 (`URL ENTRIES`): cron jobs that are all due, in its SQLAlchemy job store.

Only processing of due jobs is timed, with an executor that returns at once.
"""

from __future__ import annotations

import logging
import pickle
import sys
from datetime import UTC, datetime, timedelta

from apscheduler.job import Job
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.triggers.cron import CronTrigger
from sqlalchemy import create_engine, insert

from benchmarks.index_apscheduler import AtOnceExecutor, SteppedScheduler, nothing
from benchmarks.scheduler_peer_clock import fire_in_time


def main(url: str, entries: str) -> None:
    logging.disable()
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    store, executor = SQLAlchemyJobStore(engine=engine), AtOnceExecutor()
    scheduler = SteppedScheduler(
        jobstores={"default": store}, executors={"default": executor}, timezone=UTC
    )
    scheduler.start()
    due_at = datetime.now(UTC) - timedelta(seconds=1)
    # Stores what add_job() stores, but in one transaction instead of one per job.
    states = [_job(scheduler, str(number), due_at).__getstate__() for number in range(int(entries))]
    with engine.begin() as connection:
        connection.execute(
            insert(store.jobs_t),
            [
                {
                    "id": state["id"],
                    "next_run_time": due_at.timestamp(),
                    "job_state": pickle.dumps(state),
                }
                for state in states
            ],
        )
    fire_in_time(int(entries), lambda: executor.taken)
    while True:
        scheduler.step()


def _job(scheduler: SteppedScheduler, name: str, due_at: datetime) -> Job:
    return Job(
        scheduler,
        id=name,
        func=nothing,
        args=(),
        kwargs={},
        name=name,
        trigger=CronTrigger.from_crontab("0 9 * * *", timezone=UTC),
        executor="default",
        misfire_grace_time=None,
        coalesce=True,
        max_instances=1,
        next_run_time=due_at,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
