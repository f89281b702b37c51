"""A process that runs one store verb and is killed at a chosen step of it.

`python crashes.py` reads one JSON command per line: {"url", "verb", "step"}. For each it forks; the
child runs the verb and sends itself SIGKILL when the step comes. It answers "killed" or "done".
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable

from sqlalchemy import Engine, event

from duly import cron
from duly.model.schedule_writes import ScheduleKey, ScheduleWrite
from duly.model.schedules import Definition, ScheduleId
from duly.stores import open_store
from duly.stores.port import Store

KEY = ScheduleKey("crash", "user:ada", "digest")
BEFORE = Definition(trigger=cron("0 9 * * *", tz="Europe/Berlin"), action="send")
AFTER = Definition(trigger=cron("30 17 * * *", tz="Asia/Tokyo"), action="send")
FAR_FUTURE_MS = 4_000_000_000_000
"""In 2096, when every row is due."""


def write(definition: Definition) -> ScheduleWrite:
    return ScheduleWrite(KEY, ScheduleId("sch_crash"), definition)


async def create(store: Store) -> None:
    await store.put_schedules([write(BEFORE)])


async def change(store: Store) -> None:
    await store.put_schedules([write(AFTER)])


async def remove(store: Store) -> None:
    await store.delete_schedule(KEY)


async def claim(store: Store) -> None:
    await store.claim_due(FAR_FUTURE_MS, claim_id="crash")


VERBS: dict[str, Callable[[Store], Awaitable[None]]] = {
    "create": create,
    "change": change,
    "delete": remove,
    "claim": claim,
}


def die_at(step: int) -> None:
    """Count every statement, every commit and every return to the pool; die at the given one."""
    left = step

    def count(*_arguments: object) -> None:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    for moment in ("before_cursor_execute", "commit"):
        event.listen(Engine, moment, count)


async def run(url: str, verb: str, step: int) -> None:
    store = open_store(url, connections=1)
    die_at(step)
    await VERBS[verb](store)
    os._exit(0)


def main() -> None:
    for line in sys.stdin:
        command = json.loads(line)
        child = os.fork()
        if child == 0:
            asyncio.run(run(**command))
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        clean = os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0
        print("killed" if killed else "done" if clean else f"failed {status}", flush=True)


if __name__ == "__main__":
    main()
