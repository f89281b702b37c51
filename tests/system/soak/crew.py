"""Planner and worker processes that are killed while they work, and started again."""

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).parent.parent.parent.parent
DULY = (sys.executable, "-c", "from duly.cli import main; main()", "run")
PLANNER = ("--roles", "planner,keeper")
WORKER = ("--roles", "worker,keeper", "--lease", "2", "--slots", "8", "--drain", "5")
BOTH = ("--roles", "planner,worker,keeper", "--lease", "5", "--slots", "32", "--drain", "5")


class Crew:
    """Processes of `duly run`; ends all that it started."""

    def __init__(self, url: str, folder: Path, roles: Sequence[tuple[str, ...]]) -> None:
        self._environment = os.environ | {
            "DULY_SOAK_URL": url,
            "DULY_SOAK_JOURNAL": str(folder / "journal"),
        }
        self._log = (folder / "log").open("w")
        self._pause = threading.Event()
        self.killed = 0
        self._crew = [(role, self._start(role)) for role in roles]

    def _start(self, role: tuple[str, ...]) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [*DULY, "tests.system.soak.application:app", *role],
            cwd=ROOT,
            env=self._environment,
            stdout=self._log,
            stderr=self._log,
        )

    def kill_one(self, chance: random.Random) -> None:
        """SIGKILL, whatever it is doing; another takes its place at once."""
        place = chance.randrange(len(self._crew))
        role, victim = self._crew[place]
        victim.kill()
        victim.wait()
        self._crew[place] = (role, self._start(role))
        self.killed += 1

    def kill_until(self, ends_at: float, period_s: float, chance: random.Random) -> None:
        """Kill one after another until an instant of this machine's clock."""
        while time.time() + period_s < ends_at:
            self._pause.wait(period_s)
            self.kill_one(chance)

    def wait_until(self, is_done: Callable[[], bool], limit_s: float) -> bool:
        """Look again and again until it is done; False: the time is up."""
        deadline = time.monotonic() + limit_s
        while not is_done():
            if time.monotonic() > deadline:
                return False
            self._pause.wait(0.5)
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        for _role, process in self._crew:
            process.terminate()
        for _role, process in self._crew:
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._log.close()
