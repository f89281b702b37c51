"""Static schedules: the store is synchronised with the code, and nothing else is changed."""

import asyncio
import logging
from datetime import UTC, datetime
from typing import Any

import pytest

from duly.app import Duly, ensure_schedule
from duly.flows.collections import ScheduleCollection
from duly.flows.flow import Flow
from duly.model.scopes import SYSTEM, user
from duly.testing.clock import ManualClock
from duly.testing.jobs import drain
from tests.integration.working import in_loop

START = datetime(2026, 3, 2, 8, tzinfo=UTC)


def declared(names: dict[str, str], seen: list[str] | None = None, **options: Any) -> Flow:
    """Return a flow with one static schedule per name."""
    flow = Flow("upkeep")
    for name, expression in names.items():

        def note(name: str = name) -> None:
            if seen is not None:
                seen.append(name)

        note.__name__ = name
        flow.schedule(expression, **options)(note)
    return flow


async def stored(app: Duly) -> dict[str, tuple[str, str]]:
    found = await ScheduleCollection(app.store, "upkeep").of(SYSTEM).list()
    return {each.name: (each.definition.trigger.words, each.state) for each in found}


@in_loop
async def test_start_synchronises_the_store_with_the_code(clean_url: str) -> None:
    flow = declared({"a": "0 9 * * *", "b": "0 10 * * *"})
    async with Duly(clean_url, flows=[flow]) as app:
        report = await app.sync_static()
        assert [each.outcome for each in report.ensured] == ["created", "created"]
        again = await app.sync_static()
        assert ([each.outcome for each in again.ensured], again.deleted) == (["unchanged"] * 2, ())
        app.flows = (declared({"b": "0 11 * * *", "c": "0 12 * * *"}),)  # the next release
        report = await app.sync_static()
        assert [each.outcome for each in report.ensured] == ["updated", "created"]
        assert report.deleted == ("a",)
        assert await stored(app) == {
            "b": ("Every day at 11:00", "active"),
            "c": ("Every day at 12:00", "active"),
        }


@in_loop
async def test_only_static_schedules_are_deleted(clean_url: str) -> None:
    """Schedules created at run time, of other flows and of users stay."""
    flow, other = declared({"a": "0 9 * * *"}), Flow("other")
    other.schedule("0 5 * * *")(named("theirs"))
    async with Duly(clean_url, flows=[flow, other]) as app:
        await app.sync_static()
        await ensure_schedule(app, flow, "by hand", "0 6 * * *", action="a", input="a")
        await app.schedules(flow).of(user("ada")).create("mine", "0 7 * * *", action="a", input="a")
        empty = Flow("upkeep")
        app.flows = (empty,)
        assert (await app.sync_static()).deleted == ("a",)
        assert list(await stored(app)) == ["by hand"]
        rows = await app.store.list_rows()
        assert sorted(row.name for row in rows) == ["by hand", "mine", "theirs"]


def named(name: str) -> Any:
    def function() -> None: ...

    function.__name__ = name
    return function


@in_loop
async def test_many_starts_at_once_make_one_of_each(clean_url: str) -> None:
    flow = declared({"a": "0 9 * * *", "b": "0 10 * * *"})
    async with Duly(clean_url, flows=[flow]) as app:
        reports = await asyncio.gather(*(app.sync_static() for _ in range(5)))
        outcomes = [each.outcome for report in reports for each in report.ensured]
        assert sorted(outcomes) == ["created"] * 2 + ["unchanged"] * 8
        assert len(await app.store.list_rows()) == 2


@in_loop
async def test_running_synchronises_and_runs_static_schedules(
    clean_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The declaration is enough; the action is called with its default input."""
    seen: list[str] = []
    clock = ManualClock(START)
    app = Duly(clean_url, flows=[declared({"a": "0 9 * * *"}, seen)], clock=clock)
    with caplog.at_level(logging.INFO, "duly"):
        async with app.running(worker=False, keeper=False, planner=False):
            assert await stored(app) == {"a": ("Every day at 09:00", "active")}
            clock.advance(hours=1)
            await app.planner().run_once()
            await drain(app)
    assert seen == ["a"]
    (record,) = [each for each in caplog.records if getattr(each, "event", "") == "schedule.static"]
    assert "static schedule 'a' of flow upkeep: created" in record.getMessage()


@in_loop
async def test_a_paused_static_schedule_stays_paused(clean_url: str) -> None:
    async with Duly(clean_url, flows=[declared({"a": "0 9 * * *"})]) as app:
        await app.sync_static()
        await app.schedules("upkeep").of(SYSTEM, by="operator").pause("a", note="migration")
        assert [each.outcome for each in (await app.sync_static()).ensured] == ["unchanged"]
        assert (await stored(app))["a"] == ("Every day at 09:00", "paused")
