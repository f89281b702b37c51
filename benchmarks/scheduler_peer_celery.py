"""Celery beat (`URL ENTRIES`): due entries, sent to an in-memory broker.

Uses its plain scheduler, which stores nothing: `tick` is called until every entry was sent.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime, timedelta

from celery import Celery  # type: ignore[import-not-found]
from celery.beat import ScheduleEntry, Scheduler  # type: ignore[import-not-found]
from celery.schedules import schedule  # type: ignore[import-not-found]

from benchmarks.scheduler_peer_clock import fire_in_time


def main(_url: str, entries: str) -> None:
    logging.disable()
    app = Celery("bench", broker="memory://")
    app.conf.task_ignore_result = True
    scheduler = Scheduler(app)
    hourly, last_run_at = schedule(timedelta(hours=1)), datetime.now(UTC) - timedelta(hours=2)
    scheduler.schedule.clear()
    for number in range(int(entries)):
        name = f"entry-{number}"
        scheduler.schedule[name] = ScheduleEntry(
            name=name, task="bench.noop", schedule=hourly, last_run_at=last_run_at, app=app
        )
    sent = 0
    fire_in_time(int(entries), lambda: sent)
    while True:
        if scheduler.tick() == 0:
            sent += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
