"""Planners and workers that are killed while they work, and started again."""

import random
import time
from collections.abc import Sequence
from pathlib import Path

from tests.system.processes import Processes

PLANNER = ("--roles", "planner,keeper")
WORKER = ("--roles", "worker,keeper", "--lease", "2", "--slots", "8", "--drain", "5")
BOTH = ("--roles", "planner,worker,keeper", "--lease", "5", "--slots", "32", "--drain", "5")


class Crew(Processes):
    """Processes of `duly run` with these options."""

    def __init__(self, url: str, folder: Path, roles: Sequence[tuple[str, ...]]) -> None:
        super().__init__(url, folder)
        self.killed = 0
        self._crew = [(role, self.launch("run", *role)) for role in roles]

    def kill_until(self, ends_at: float, period_s: float, chance: random.Random) -> None:
        """Kill one after another until an instant of this machine's clock, whatever it does.

        Another takes its place at once.
        """
        while time.time() + period_s < ends_at:
            self._pause.wait(period_s)
            place = chance.randrange(len(self._crew))
            role, victim = self._crew[place]
            victim.kill()
            self._crew[place] = (role, self.launch("run", *role))
            self.killed += 1
