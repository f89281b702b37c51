"""Random definitions for the schedules of a simulation.

Every trigger ends at the same time, so that a simulation has a quiet end in which everything that
was started must finish.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from duly.model.retries import RetryPolicy
from duly.model.schedules import Misfire, Policies
from duly.triggers import Trigger, cron, every, once, weekly
from duly.triggers.weekly import DAYS

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu")


@dataclass(frozen=True, slots=True)
class Drawing:
    """A random source of triggers, policies, inputs and limits of schedules."""

    chance: random.Random
    now: Callable[[], datetime]
    end: datetime
    """`end_at` of every trigger."""

    def trigger(self) -> Trigger:
        """Return a trigger that probably fires between now and the end."""
        kinds = (self._every, self._seconds, self._minutes, self._daily, self._weekly, self._once)
        return self.chance.choices(kinds, weights=(4, 3, 1, 2, 1, 1))[0]()

    def policies(self) -> Policies:
        """Return any combination of policies."""
        chance = self.chance
        misfire = Misfire(
            kind=chance.choice(("run_once", "skip", "catch_up")),
            limit=chance.randint(1, 5),
            max_age_ms=chance.choice((20_000, 600_000)),
            per_minute=chance.choice((60, 600)),
        )
        retry = RetryPolicy(
            attempts=chance.randint(1, 3),
            backoff=chance.choice(("none", "fixed", "exponential")),
            first_delay_ms=chance.choice((200, 3_000)),
            longest_delay_ms=5_000,
        )
        return Policies(
            misfire=misfire,
            grace_ms=chance.choice((0, 1_000, 10_000, 60_000)),
            overlap=chance.choice(("skip", "allow", "buffer_one", "cancel_running")),
            delivery=chance.choice(("at_least_once", "at_least_once", "at_most_once")),
            priority=chance.choice((0, 0, 5)),
            retry=retry,
            timeout_ms=chance.choice((1_000, 4_000, 15_000)),
            pause_after_failures=chance.choice((None, None, None, 2)),
        )

    def input(self) -> dict[str, float]:
        """Return the handler's mean duration, and shares of attempts that fail or hang."""
        chance = self.chance
        return {
            "takes_s": chance.choice((0.01, 0.5, 4.0, 20.0)),
            "fails": chance.choice((0.0, 0.0, 0.2, 0.9)),
            "hangs": chance.choice((0.0, 0.0, 0.0, 0.2)),
        }

    def max_runs(self) -> int | None:
        """Return a limit on runs; most often None."""
        return self.chance.choice((None, None, None, 1, 4))

    def _spread(self) -> float | None:
        return self.chance.choice((None, None, 3.0, 20.0))

    def _wall(self) -> dict[str, Any]:
        chance = self.chance
        return {
            "tz": chance.choice(ZONES),
            "gap": chance.choice(("next_valid", "shift", "skip")),
            "fold": chance.choice(("first", "second", "both")),
            "end_at": self.end,
            "spread": self._spread(),
        }

    def _every(self) -> Trigger:
        seconds = self.chance.choice((2, 3, 5, 8, 13, 30, 60))
        return every(seconds=seconds, end_at=self.end, spread=self._spread())

    def _seconds(self) -> Trigger:
        step = self.chance.choice((4, 7, 15, 30))
        return cron(f"*/{step} * * * * *", seconds=True, **self._wall())

    def _minutes(self) -> Trigger:
        return cron(f"*/{self.chance.randint(1, 3)} * * * *", **self._wall())

    def _daily(self) -> Trigger:
        wall = self._wall()
        at = self._soon(wall["tz"])
        minutes = sorted({(at.minute + self.chance.randint(0, 4)) % 60 for _ in range(3)})
        return cron(f"{','.join(map(str, minutes))} {at.hour} * * *", **wall)

    def _weekly(self) -> Trigger:
        wall = self._wall()
        soon = sorted({self._soon(wall["tz"]) for _ in range(3)})
        days: dict[str, list[str]] = {}
        for at in soon:
            times = days.setdefault(DAYS[at.weekday()], [])
            if at.strftime("%H:%M") not in times:
                times.append(at.strftime("%H:%M"))
        return weekly({day: sorted(times) for day, times in days.items()}, **wall)

    def _once(self) -> Trigger:
        return once(self._between(), spread=self._spread())

    def _between(self) -> datetime:
        now = self.now()
        seconds = max((self.end - now).total_seconds(), 1.0)
        return now + timedelta(milliseconds=int(self.chance.uniform(0, seconds) * 1_000))

    def _soon(self, zone: str) -> datetime:
        return self._between().astimezone(ZoneInfo(zone))
