"""The processes of a run: `duly` commands on the application of the system tests.

They share a database and a record, and each has a log. Those that are left at the end are killed.
"""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.system.record import Record

ROOT = Path(__file__).parent.parent.parent
DULY = (sys.executable, "-c", "from duly.cli import main; main()")
APPLICATION = "tests.system.application:app"
POLL_S = 0.05
LIMIT_S = 90.0
STOP_S = 15.0
LOGS, LOG_CHARACTERS = 8, 1_500
"""How many logs, and how much of each, an error shows."""


@dataclass(eq=False)
class Process:
    """One `duly` command."""

    popen: "subprocess.Popen[bytes]"
    log: Path

    @property
    def is_running(self) -> bool:
        """Return whether it has not ended."""
        return self.popen.poll() is None

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self.popen.send_signal(number)

    def kill(self) -> None:
        """Kill it where it stands, and wait until it is gone."""
        self.popen.kill()
        self.popen.wait(LIMIT_S)

    def has_logged(self, words: str) -> bool:
        """Return whether its log contains some words."""
        return words in self.log.read_text()

    @property
    def url(self) -> str | None:
        """Return the URL that it serves; None: it does not listen yet."""
        found = re.search(r"dashboard and API at (http://\S+)", self.log.read_text())
        return None if found is None else found[1]


class Processes:
    """Processes on one database, with one record; killed at the end of a `with` block."""

    def __init__(self, url: str, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.record = Record(folder / "record")
        self.started: list[Process] = []
        """In the order of their start, those that have ended too."""
        self._told = {"DULY_SYSTEM_URL": url, "DULY_SYSTEM_RECORD": str(self.record.path)}
        self._pause = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.running:
            each.kill()

    @property
    def running(self) -> list[Process]:
        """Return the processes that have not ended, oldest first."""
        return [each for each in self.started if each.is_running]

    def launch(
        self, *words: str, environment: Mapping[str, str] | None = None, under: Sequence[str] = ()
    ) -> Process:
        """Start a `duly` command on the application, by another command if one is given.

        The first word is its name; the application comes after it.
        """
        command, *options = words
        log = self.folder / f"{command}-{len(self.started)}.log"
        with log.open("wb") as output:
            popen = subprocess.Popen(
                [*under, *DULY, command, APPLICATION, *options],
                cwd=ROOT,
                env={**os.environ, **self._told, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self.started.append(Process(popen, log))
        return self.started[-1]

    def tend(self) -> None:
        """Do what has to be done from time to time while a run waits; here nothing."""

    def until(
        self,
        condition: Callable[[], bool],
        what: str,
        *,
        limit_s: float = LIMIT_S,
        poll_s: float = POLL_S,
    ) -> None:
        """Wait for a condition; TimeoutError if it takes too long or every process has ended."""
        deadline_s = time.monotonic() + limit_s
        while not condition():
            self.tend()
            have_all_ended = bool(self.started) and not self.running
            if have_all_ended or time.monotonic() > deadline_s:
                raise TimeoutError(
                    f"{what}: not within {limit_s:g} s, or no process is left\n{self._logs()}"
                )
            self._pause.wait(poll_s)

    def stop(self) -> None:
        """Ask every process to end, as before a deployment, and wait for those that do in time."""
        for each in self.running:
            each.signal(signal.SIGTERM)
        for each in self.running:
            with suppress(subprocess.TimeoutExpired):
                each.popen.wait(STOP_S)

    def _logs(self) -> str:
        return "\n".join(each.log.read_text()[-LOG_CHARACTERS:] for each in self.started[-LOGS:])


def now_ms() -> int:
    """Return the present, in milliseconds since 1970; servers share this machine's clock."""
    return time.time_ns() // 1_000_000
