"""`duly run` and Ctrl-C: the first waits for running handlers, the second releases their jobs."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from duly import Duly
from duly.model.stored_jobs import JobFilter
from duly.operate.job_views import JobView

APPLICATION = """
import asyncio

from duly import Duly, Flow

slow = Flow("slow")


@slow.action
async def wait() -> None:
    print("begun", flush=True)
    await asyncio.Event().wait()


app = Duly("sqlite:///duly.db", flows=[slow])
"""
WAIT_LIMIT_S = 60


def wait_for(stream: IO[str] | None, text: str) -> None:
    """Read lines until one contains the text; fail if the process ends first."""
    assert stream is not None
    if not any(text in line for line in stream):
        pytest.fail(f"the process ended without {text!r}")


def jobs(url: str) -> list[JobView]:
    async def ask() -> list[JobView]:
        async with Duly(url) as app:
            return list(await app.admin.jobs(JobFilter()))

    return asyncio.run(ask())


def test_second_interrupt_releases_running_jobs(tmp_path: Path) -> None:
    (tmp_path / "slow_app.py").write_text(APPLICATION)
    subprocess.run(
        [sys.executable, "-c", "from slow_app import *; app.sync.client.enqueue(wait, None)"],
        cwd=tmp_path,
        check=True,
    )
    duly = Path(sys.executable).with_name("duly")
    process = subprocess.Popen(
        [duly, "run", "slow_app:app", "--roles", "worker", "--drain", "3600"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        wait_for(process.stdout, "begun")
        process.send_signal(signal.SIGINT)
        wait_for(process.stdout, "stopping")
        process.send_signal(signal.SIGTERM)  # from a supervisor; only Ctrl-C stops the drain
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=WAIT_LIMIT_S)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, "Traceback" in out) == (0, False), out
    (job,) = jobs(f"sqlite:///{tmp_path}/duly.db")
    assert (job.state.value, job.attempts) == ("queued", 0)
