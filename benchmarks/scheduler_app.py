"""The application that `duly run` serves while lateness is measured.

Its handler writes job and time to a journal, which is buffered and flushed at exit.
"""

from __future__ import annotations

import atexit
import os
import time
from functools import cache
from pathlib import Path
from typing import TextIO

from duly import Context, Duly, Flow

FLOW = "steady"
URL, JOURNAL = "DULY_BENCH_URL", "DULY_BENCH_JOURNAL"

flow = Flow(FLOW)


@cache
def _journal() -> TextIO:
    """Return the journal, opened by the first note, so that importing the module opens none."""
    journal = Path(os.environ.get(JOURNAL, os.devnull)).open("a")  # noqa: SIM115 - closed at exit
    atexit.register(journal.close)
    return journal


@flow.action
async def note(ctx: Context) -> None:
    """Write down when the handler of a job started."""
    _journal().write(f"{ctx.job_id} {time.time() * 1000:.1f}\n")


app = Duly(os.environ.get(URL, "memory:"), flows=[flow])
