"""The phases of a job at which a process stops and waits to be killed.

Its environment names the phase; the process logs when it gets there.
"""

import inspect
import os
import threading
from typing import Any, cast

from duly.stores.port import Store

PHASES = ("claimed", "running", "returned", "finishing", "finished")
"""After a claim; in a handler; before the finish; inside its transaction; after its commit."""
REACHED = "reached the phase: "


class Phases:
    """The phase at which this process stops, after it has passed it `skip` times."""

    def __init__(self, phase: str, skip: int) -> None:
        self.phase = phase
        self._skip = skip

    def reach(self, phase: str) -> None:
        """Log the phase and wait for ever, if it is the one to stop at."""
        if phase != self.phase:
            return
        self._skip -= 1
        if self._skip < 0:
            print(f"{REACHED}{phase}", flush=True)
            threading.Event().wait()


phases = Phases(
    os.environ.get("DULY_SYSTEM_PHASE", ""), int(os.environ.get("DULY_SYSTEM_SKIP", "0"))
)


class PhasedStore:
    """A store that goes through the phases of claims and completions."""

    def __init__(self, store: Store) -> None:
        self._store = store
        dialect = cast(Any, store)._dialect
        end_jobs = dialect.end_jobs

        def stopping(*args: Any) -> Any:
            ended = end_jobs(*args)
            phases.reach("finishing")
            return ended

        dialect.end_jobs = stopping

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in ("claim_jobs", "finish") or not inspect.iscoroutinefunction(found):
            return found

        async def call(*args: Any) -> Any:
            if name == "finish":
                phases.reach("returned")
            answer = await found(*args)
            if name == "finish" or answer.jobs:
                phases.reach("finished" if name == "finish" else "claimed")
            return answer

        return call
