"""Tests of `fast_forward`: every due handler is called at its virtual time."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from duly.app import Duly
from duly.errors import InvalidInput
from duly.flows.collections import ScheduleCollection
from duly.flows.collections.schedules import ScopedSchedules
from duly.flows.flow import Flow
from duly.model.jobs import JobState
from duly.model.retries import RetryPolicy
from duly.model.scopes import SYSTEM, user
from duly.testing.clock import ManualClock
from duly.testing.simulation import Forwarded, fast_forward
from duly.triggers import cron, every

START = datetime(2026, 3, 1, tzinfo=UTC)
ONE_TRY = RetryPolicy(attempts=1)


class Application:
    """An application whose actions record the time of each call."""

    def __init__(self) -> None:
        self.clock = ManualClock(START)
        self.seen: list[tuple[str, datetime]] = []
        self.flow = Flow("work")
        self.flow.action(name="note")(self.note)
        self.flow.action(name="linger")(self.linger)
        self.flow.action(name="fail", retry=ONE_TRY)(self.fail)
        self.flow.action(name="repeat")(self.repeat)
        self.app = Duly("memory:", flows=[self.flow], clock=self.clock)

    def schedules(self) -> ScopedSchedules:
        """Return the schedules of the system."""
        return ScheduleCollection(self.app.store, "work").of(SYSTEM)

    def note(self, what: str) -> None:
        self.seen.append((what, self.clock.now()))

    async def linger(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self.seen.append(("linger", self.clock.now()))

    async def fail(self, what: str) -> None:
        raise LookupError(what)

    async def repeat(self, minutes: int) -> None:
        self.seen.append(("repeat", self.clock.now()))
        trigger = every(minutes=minutes, start_at=self.clock.now())
        await self.schedules().create("made", trigger, action="note", input="made")


Setting = Callable[[Application], Awaitable[Forwarded]]


def forward(setting: Setting) -> tuple[Application, Forwarded]:
    """Run `setting` with a new application, and return both."""
    application = Application()
    return application, asyncio.run(setting(application))  # type: ignore[arg-type]


def test_a_month_with_a_clock_change() -> None:
    async def setting(its: Application) -> Forwarded:
        mine = ScheduleCollection(its.app.store, "work").of(user("ada"))
        berlin = cron("0 9 * * MON", tz="Europe/Berlin")
        await mine.create("weekly", berlin, action="note", input="weekly")
        await its.schedules().create("daily", cron("0 0 * * *"), action="note", input="daily")
        return await fast_forward(its.app, days=31)

    its, passed = forward(setting)
    # Five Mondays. Clocks change on the 29th; the wall time stays 09:00.
    mondays = [at for what, at in its.seen if what == "weekly"]
    assert mondays == [
        datetime(2026, 3, day, 7 if day == 30 else 8, tzinfo=UTC) for day in (2, 9, 16, 23, 30)
    ]
    assert passed.fires == {"work/ada/weekly": 5, "work/system/daily": 31}
    assert its.clock.now() == passed.until == START + timedelta(days=31), "the end is included"
    assert not passed.failures
    assert [each.began_at for each in passed.runs if each.schedule == "work/ada/weekly"] == mondays


def test_failures_are_reported_with_their_errors() -> None:
    async def setting(its: Application) -> Forwarded:
        await its.schedules().create("bad", cron("0 6 * * *"), action="fail", input="no such user")
        return await fast_forward(its.app, days=2)

    _, passed = forward(setting)
    assert passed.fires == {"work/system/bad": 2}
    assert [(each.nominal_at, each.error, each.state) for each in passed.failures] == [
        (datetime(2026, 3, day, 6, tzinfo=UTC), "LookupError: no such user", JobState.DEAD)
        for day in (1, 2)
    ]


def test_what_handlers_schedule_and_enqueue_runs_too() -> None:
    async def setting(its: Application) -> Forwarded:
        await its.app.client.enqueue("work.repeat", 20)
        await its.app.client.enqueue("work.linger", 5_400.0, delay=timedelta(minutes=10))
        return await fast_forward(its.app, hours=3)

    its, passed = forward(setting)
    made = [at - START for what, at in its.seen if what == "made"]
    assert made == [timedelta(minutes=20 * number) for number in range(1, 10)]
    assert passed.fires == {"work/system/made": 9}
    assert ("repeat", START) in its.seen
    # The handler would take 90 minutes; it times out after five minutes, five times.
    lingering = [each for each in passed.runs if each.schedule is None and each.error]
    assert [each.state for each in lingering] == [JobState.RETRYING] * 4 + [JobState.DEAD]


def test_jobs_without_a_handler_are_reported() -> None:
    async def setting(its: Application) -> Forwarded:
        await its.schedules().create("odd", every(hours=1), action="gone", input="x")
        return await fast_forward(its.app, hours=2)

    _, passed = forward(setting)
    assert passed.waiting == {"work.gone": 1}, "the second is skipped: the first has not ended"
    assert not passed.runs


def test_it_continues_where_it_stopped() -> None:
    async def setting(its: Application) -> Forwarded:
        await its.schedules().create("hourly", every(hours=1), action="note", input="hourly")
        first = await fast_forward(its.app, minutes=90)
        second = await fast_forward(its.app, minutes=90)
        assert (first.fires, second.fires) == ({"work/system/hourly": 1}, {"work/system/hourly": 2})
        return second

    its, _ = forward(setting)
    assert [at - START for _, at in its.seen] == [timedelta(hours=each) for each in (1, 2, 3)]


@pytest.mark.parametrize(
    ("app", "span", "message"),
    [
        (Duly("memory:"), {"days": 1}, "ManualClock"),
        (Duly("memory:", clock=ManualClock(START)), {"days": 0}, "positive duration"),
    ],
)
def test_invalid_arguments_are_refused(app: Duly, span: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        asyncio.run(fast_forward(app, **span))


PLUGIN_TEST = """
import asyncio
from datetime import UTC, datetime
from duly import SYSTEM, Duly, Flow, ScheduleCollection, cron
from duly.testing import ManualClock

pytest_plugins = ["duly.testing.pytest_plugin"]
flow = Flow("work")

@flow.action
def note(what: str) -> None: ...

def test_it(fast_forward):
    async def main():
        clock = ManualClock(datetime(2026, 3, 1, tzinfo=UTC))
        async with Duly("memory:", flows=[flow], clock=clock) as app:
            mine = ScheduleCollection(app.store, "work").of(SYSTEM)
            await mine.create("daily", cron("0 8 * * *"), action="note", input="x")
            return await fast_forward(app, days=30)

    assert asyncio.run(main()).fires == {"work/system/daily": 30}
"""


def test_the_fixture_comes_with_the_plugin(tmp_path: Path) -> None:
    (tmp_path / "test_application.py").write_text(PLUGIN_TEST)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_application.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout
