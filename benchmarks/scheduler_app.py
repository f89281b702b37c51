"""The application that `duly run` serves while lateness is measured.

Its handler notes job and time in a journal, which is written in batches and whole when it ends.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from duly import Context, Duly, Flow

FLOW = "steady"
URL, JOURNAL = "DULY_BENCH_URL", "DULY_BENCH_JOURNAL"

flow = Flow(FLOW)
_journal = Path(os.environ.get(JOURNAL, os.devnull)).open("a")  # noqa: SIM115 - closed at exit


@flow.action
async def note(ctx: Context) -> None:
    """When the handler of a job began."""
    _journal.write(f"{ctx.job_id} {time.time() * 1000:.1f}\n")


app = Duly(os.environ.get(URL, "memory:"), flows=[flow])
