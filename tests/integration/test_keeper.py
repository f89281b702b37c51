"""The keeper: rescue, promotion, retention and silent workers; bounded rounds, and outages."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duly.app import Duly
from duly.flows.flow import Flow
from duly.model.claims import ClaimRequest, NextLeaseEnd
from duly.model.jobs import JobState, WorkerId
from duly.model.queues import Line, WorkerInfo
from duly.model.scopes import user
from duly.model.stored_jobs import MAX_SWEEP, Retention
from duly.model.summaries import AuditEntry
from duly.model.upkeep import LedgerPruned, Recomputed, SchedulesPruned
from duly.runtime import Keeper, KeeperOptions
from duly.runtime.keeper import _ROUNDS, _ZONE_STEPS, Kept
from duly.testing.clock import ManualClock
from duly.triggers import once
from tests.integration.working import enqueue, in_loop, open_app, path

GONE = WorkerId("worker_gone")
START = datetime(2026, 3, 1, tzinfo=UTC)


@in_loop
async def test_one_round_does_all_upkeep(any_url: str) -> None:
    clock = ManualClock(START)
    app, store = open_app(any_url, Flow("work"), clock=clock)
    options = KeeperOptions(retention=Retention(cancelled_ms=30_000), silent_worker_s=40)
    async with app:
        (lost,) = await enqueue(app, "work.a", [None])
        await store.claim_jobs(ClaimRequest(worker=GONE, lease_ms=10_000))
        await store.beat(WorkerInfo(GONE, "host", 7, ("default",), 1))
        (due,) = await enqueue(
            app, "work.a", [None], run_at=datetime(2026, 3, 1, 0, 0, 30, tzinfo=UTC)
        )
        (old, kept) = await enqueue(app, "work.a", [None, None])
        await app.client.cancel(old)
        clock.advance(seconds=35)
        await app.client.cancel(kept)
        clock.advance(seconds=6)
        assert await app.keeper(options).run_once() == Kept(1, 1, 1, 1)
        assert await path(store, lost) == ["queued", "processing", "queued"]
        assert [each.status for each in await store.job_attempts(lost)] == ["lost"]
        assert await path(store, due) == ["scheduled", "queued"]
        assert await store.get_job(old) is None
        assert (await store.get_job(kept)).state is JobState.CANCELLED
        assert await store.list_workers() == []
        assert await app.keeper(options).run_once() == Kept()


@in_loop
async def test_ended_jobs_are_looked_for_less_often() -> None:
    app, store = open_app("memory:", Flow("work"))
    async with app:
        keeper = app.keeper(KeeperOptions(prune_period_s=3_600))
        for _ in range(3):
            await keeper.run_once()
        assert (store.count("promote_due"), store.count("prune")) == (3, 1)


@in_loop
async def test_the_audit_log_is_kept_for_over_a_year() -> None:
    clock = ManualClock(START)
    async with Duly("memory:", clock=clock) as app:
        await app.admin.monitoring.record(AuditEntry("ada", "queue.pause", "queue:mail"))
        clock.advance(days=400)
        assert (await app.keeper().run_once()).audit == 0
        clock.advance(milliseconds=1)
        assert (await app.keeper().run_once()).audit == 1
        assert await app.admin.monitoring.audit() == []


@in_loop
async def test_finished_schedules_are_deleted() -> None:
    clock = ManualClock(START)
    flow = Flow("work")

    @flow.action
    async def remind() -> None: ...

    async with Duly("memory:", flows=[flow], clock=clock) as app:
        mine = app.schedules("work").of(user("ada"))
        at = START + timedelta(hours=1)
        await mine.create("kept", once(at), action=remind)
        await mine.create("gone", once(at), action=remind, delete_after_completion=True)
        clock.advance(hours=1)
        assert [each.name for each in await app.store.claim_due()] == ["kept", "gone"]
        assert (await app.keeper().run_once()).schedules == 1
        assert [each.name for each in await mine.list()] == ["kept"]
        clock.advance(days=30)
        assert (await app.keeper().run_once()).schedules == 1
        assert await mine.list() == []


class Endless:
    """A store in which every sweep finds a full batch."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, verb: str) -> Any:
        async def sweep(*_: object, **_options: object) -> Any:
            self.calls.append(verb)
            answers: dict[str, Any] = {
                "next_lease_end": NextLeaseEnd(at_ms=1, now_ms=2),
                "remove_silent_workers": [],
                "count_line": Line(0, []),
                "zone_rules": None,
                "prune_ledger": LedgerPruned(MAX_SWEEP, 0, "ledger:x"),
                "prune_schedules": SchedulesPruned(MAX_SWEEP, "finished:1/x"),
                "recompute_zones": Recomputed(1_000, 0, (), "rows:1"),
            }
            return answers.get(verb, MAX_SWEEP)

        return sweep


@in_loop
async def test_no_step_starves_the_others() -> None:
    store: Any = Endless()
    kept = await Keeper(store).run_once()
    full = _ROUNDS * MAX_SWEEP
    assert kept == Kept(full, full, full, 0, full, schedules=full)
    verbs = ("promote_due", "prune", "prune_ledger", "prune_schedules", "recompute_zones")
    steps = [store.calls.count(verb) for verb in verbs]
    assert steps == [_ROUNDS, _ROUNDS, _ROUNDS, _ROUNDS, _ZONE_STEPS]


@in_loop
async def test_a_keeper_survives_an_outage(caplog: pytest.LogCaptureFixture) -> None:
    app, store = open_app("memory:", Flow("work"))
    store.fail("next_lease_end", 2)
    async with app:
        keeper = app.keeper(KeeperOptions(period_s=0.01))
        running = asyncio.create_task(keeper.run())
        await store.until("next_lease_end", 3)
        keeper.stop()
        await running
    assert [record.getMessage() for record in caplog.records] == ["keeper: planted"] * 2


@in_loop
async def test_a_keeper_stops_while_it_waits() -> None:
    app, store = open_app("memory:", Flow("work"))
    async with app:
        keeper = app.keeper(KeeperOptions(period_s=3_600))
        running = asyncio.create_task(keeper.run())
        await store.until("prune")
        keeper.stop()
        await running
