"""The application that `duly run` serves while lateness is measured.

Its handler notes job and time in a journal, which is written in batches and whole when it ends.
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
    """The journal, opened by the first note: who imports this module for its names opens none."""
    journal = Path(os.environ.get(JOURNAL, os.devnull)).open("a")  # noqa: SIM115 - closed at exit
    atexit.register(journal.close)
    return journal


@flow.action
async def note(ctx: Context) -> None:
    """When the handler of a job began."""
    _journal().write(f"{ctx.job_id} {time.time() * 1000:.1f}\n")


app = Duly(os.environ.get(URL, "memory:"), flows=[flow])
