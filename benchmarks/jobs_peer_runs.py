"""One timed run of worker programs over jobs that were all enqueued before.

The time runs from the first call of a handler in any worker until a query sees that every job is
finished in the database. It excludes start-up and enqueueing, and does not rely on what a worker
reports. The database is queried only after nine tenths of the calls, at most every 20 ms and for at
most a fifth of the time, so that the queries do not slow down the run.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.jobs_peer_environments import ROOT, Absent, Program

ASK_SECONDS = 0.02
ASK_FROM = 0.9
ASK_SHARE = 5
ERROR = re.compile(r"[\w.]*(Error|Exception)\b")
FOLDERS = re.compile(r"/\S*/")


@dataclass(slots=True)
class Said:
    """What one worker has reported so far."""

    first_at: float | None = None
    calls: int = 0


@dataclass(frozen=True, slots=True)
class Worker:
    """A running worker."""

    process: subprocess.Popen[str]
    said: Said = field(default_factory=Said)

    def listen(self) -> None:
        """Read the worker's lines until it ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            # Peers may print anything; only lines of our scripts are JSON objects.
            if line.startswith("{"):
                facts = json.loads(line)
                self.said.first_at = facts.get("first_at", self.said.first_at)
                self.said.calls = facts.get("calls", self.said.calls)


def run_once(program: Program, arguments: Sequence[str], log: Path, deadline_at: float) -> None:
    """Run a peer's script to its end."""
    with log.open("w") as errors:
        try:
            done = subprocess.run(
                [*program.words, *arguments],
                cwd=ROOT,
                env=os.environ | program.variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                timeout=max(0.1, deadline_at - time.time()),
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Absent(f"{arguments[0]} took too long") from None
    if done.returncode:
        raise Absent(f"{arguments[0]} failed: {complaint(log)}")


def drain_seconds(
    workers: Sequence[Worker],
    jobs: int,
    is_done: Callable[[], bool],
    log: Path,
    deadline_at: float,
) -> float:
    """Wait until all jobs are finished; return the seconds since the first call.

    Uses wall-clock time, since it starts in one process and ends in another.
    """
    pause = ASK_SECONDS
    while time.time() < deadline_at:
        time.sleep(pause)
        if any(each.process.poll() is not None for each in workers):
            raise Absent(f"a worker ended early: {complaint(log)}")
        if sum(each.said.calls for each in workers) < jobs * ASK_FROM:
            continue
        asked_at = time.time()
        done = is_done()
        answered_at = time.time()
        if done:
            return answered_at - min(each.said.first_at or answered_at for each in workers)
        pause = max(ASK_SECONDS, (answered_at - asked_at) * (ASK_SHARE - 1))
    called = sum(each.said.calls for each in workers)
    raise Absent(f"out of time after {called:,} of {jobs:,} calls")


@contextlib.contextmanager
def running(
    program: Program, arguments: Sequence[str], count: int, log: Path
) -> Iterator[list[Worker]]:
    """Run `count` worker processes during the block."""
    with contextlib.ExitStack() as ends, log.open("w") as errors:
        workers = []
        for _ in range(count):
            process = subprocess.Popen(
                [*program.words, *arguments],
                cwd=ROOT,
                env=os.environ | program.variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
            worker = Worker(process)
            listener = threading.Thread(target=worker.listen, daemon=True)
            listener.start()
            ends.callback(_end, process, listener)
            workers.append(worker)
        yield workers


def _end(process: subprocess.Popen[str], listener: threading.Thread) -> None:
    # The database is dropped afterwards, so a graceful stop is not needed.
    process.kill()
    listener.join()
    with process:
        pass


def complaint(log: Path) -> str:
    """Return the last error that a program wrote, else its last line, without paths."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    spoken = [line for line in lines if line]
    errors = [line for line in spoken if ERROR.match(line)]
    said = (errors or spoken or ["no output"])[-1]
    return FOLDERS.sub("", said)[:200]
