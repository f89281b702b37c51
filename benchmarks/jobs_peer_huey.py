"""huey's no-op jobs on SQLite: `enqueue FILE JOBS`, or `work FILE JOBS OPTIONS`.

Results are stored, since a job leaves its queue before it runs and only its result proves the run.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

from huey import SqliteHuey  # type: ignore[import-not-found]

from benchmarks.jobs_peer_calls import Calls, end_with_parent


def new_huey(file: str, jobs: int) -> Any:
    calls = Calls(jobs)
    huey = SqliteHuey(filename=file, fsync=True, results=True, store_none=True)

    def noop() -> None:
        calls.note()

    huey.noop = huey.task(name="noop")(noop)
    return huey


def enqueue(file: str, jobs: int) -> None:
    huey = new_huey(file, jobs)
    storage = huey.storage
    # Does what huey.enqueue() does, but in one transaction instead of one per job.
    rows = [
        (storage.name, huey.serialize_task(huey.noop.s()), huey.noop.s().priority or 0)
        for _ in range(jobs)
    ]
    with storage.db(commit=True) as cursor:
        cursor.executemany("INSERT INTO task (queue, data, priority) VALUES (?, ?, ?)", rows)


def work(file: str, jobs: int, options: dict[str, Any]) -> None:
    huey = new_huey(file, jobs)
    huey.create_consumer(
        workers=options["workers"], worker_type="thread", periodic=False, check_worker_health=False
    ).run()


def main(verb: str, file: str, jobs: str, options: str = "{}") -> None:
    logging.disable()
    if verb == "enqueue":
        enqueue(file, int(jobs))
    else:
        end_with_parent()
        work(file, int(jobs), json.loads(options))


if __name__ == "__main__":
    main(*sys.argv[1:])
