"""Tests of what the pages read: cached answers, streams, alarms, meters, metrics and probes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import msgspec
import pytest
from starlette.responses import StreamingResponse

from duly import (
    SYSTEM,
    Context,
    Duly,
    Flow,
    ScheduleCollection,
    ScheduleKey,
    cron,
    every,
    once,
    user,
)
from duly.errors import BackendUnavailable, InvalidInput
from duly.model.claims import ClaimRequest
from duly.model.index_rows import IndexRow
from duly.model.jobs import WorkerId
from duly.model.ledger_counts import OccurrenceCounts, OutcomeCount
from duly.model.plans import PlanRequest
from duly.model.stored_jobs import Retention
from duly.model.summaries import DueSummary
from duly.operate.alarms import alarms, is_missed
from duly.rules.outcomes import Failed, Succeeded, decide
from duly.testing import ManualClock
from duly.web.dashboard.cached import Kept, Shared
from duly.web.dashboard.live import Live, changes, event
from duly.web.dashboard.site import dashboard_app
from duly.web.metrics import OTHER_FLOWS, Metrics, of_ledger
from duly.web.operators.auth import AuthOptions, OperatorAuth

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
TOKEN = "scrape-scrape-scrape"  # noqa: S105
HOUR_MS = 3_600_000


def an_app(clock: ManualClock) -> Duly:
    flow = Flow("crm")

    @flow.action
    async def send(input: dict[str, str], ctx: Context) -> None:  # noqa: A002
        """Nothing."""

    return Duly("memory:", flows=[flow], clock=clock)


async def a_schedule(app: Duly, rule: str = "0 * * * *") -> None:
    await (
        ScheduleCollection(app.store, "crm")
        .of(user("ada"))
        .create("digest", cron(rule), action="send")
    )


def test_answers_are_cached_and_read_once_at_a_time() -> None:
    async def check() -> None:
        reads, may_end = 0, asyncio.Event()

        async def read() -> int:
            nonlocal reads
            reads += 1
            await may_end.wait()
            return reads

        kept = Kept(read, for_s=1_000)
        assert await kept.get(0) is None
        assert kept.age_s is None
        waiting = [asyncio.create_task(kept.get(60)) for _ in range(3)]
        await asyncio.sleep(0)
        may_end.set()
        assert await asyncio.gather(*waiting) == [1, 1, 1]
        assert await kept.get(0) == 1
        assert kept.age_s is not None

    asyncio.run(check())


def test_shared_answers_are_read_once_for_all() -> None:
    async def check() -> None:
        reads, may_end = 0, asyncio.Event()

        async def read() -> int:
            nonlocal reads
            reads += 1
            await may_end.wait()
            return reads

        shared = Shared(read, for_s=1_000)
        cancelled, *waiting = [asyncio.create_task(shared.get()) for _ in range(4)]
        await asyncio.sleep(0)
        cancelled.cancel()
        may_end.set()
        assert await asyncio.gather(*waiting) == [1, 1, 1]
        assert await shared.get() == 1
        shared.forget()
        assert await shared.get() == 2

    asyncio.run(check())


def failing_once() -> Callable[[], Awaitable[int]]:
    """Return a function that returns 1, fails, and then returns 2."""
    answers: list[int | Exception] = [1, BackendUnavailable("cancelled"), 2]

    async def read() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return read


def test_shared_answers_are_never_too_old() -> None:
    async def check() -> None:
        shared = Shared(failing_once(), for_s=0)
        assert await shared.get() == 1
        with pytest.raises(BackendUnavailable):
            await shared.get()
        assert await shared.get() == 2

    asyncio.run(check())


def test_old_answers_stay_while_new_ones_are_read() -> None:
    async def check() -> None:
        kept = Kept(failing_once(), for_s=0)
        assert [await kept.get(60) for _ in range(3)] == [1, 1, 2]

    asyncio.run(check())


def test_try_now_waits_only_for_the_first_answer() -> None:
    async def check() -> None:
        may_end, reads = asyncio.Event(), 0
        may_end.set()

        async def read() -> int:
            nonlocal reads
            await may_end.wait()
            reads += 1
            return reads

        kept = Kept(read, for_s=0)
        assert await kept.try_now() == 1
        may_end.clear()
        assert await kept.try_now() == 1
        may_end.set()
        assert await kept.get(60) == 2

    asyncio.run(check())


def test_parts_are_sent_when_they_differ() -> None:
    sent: dict[str, str] = {}
    assert changes(sent, {"a": "1", "b": "2"}) == {"a": "1", "b": "2"}
    assert changes(sent, {"a": "1", "b": "3"}) == {"b": "3"}
    early = '<time datetime="x" title="y">3 s ago</time>'
    assert changes(sent, {"a": early}) == {"a": early}
    assert changes(sent, {"a": early.replace("3 s", "9 s")}) == {}
    assert changes(sent, {"a": early.replace('"x"', '"z"')}) != {}


def test_events_are_one_line() -> None:
    sent = event("parts", {"a": "line\nbreak\r\n\n"})
    assert sent.count(b"\n") == 3
    kind, body, *_ = sent.split(b"\n")
    assert kind == b"event: parts"
    assert msgspec.json.decode(body.removeprefix(b"data: ")) == {"a": "line\nbreak\r\n\n"}


async def _nothing() -> dict[str, str] | None:
    return {"a": "1"}


def test_streams_are_bounded_and_end_with_the_server() -> None:
    async def check() -> None:
        live = Live(period_s=60, most=1)
        first = live.answer(_nothing)
        assert isinstance(first, StreamingResponse)
        stream = aiter(first.body_iterator)
        assert b"retry" in await anext(stream)
        assert b"event: parts" in await anext(stream)
        assert live.streams == 1
        assert live.answer(_nothing).status_code == 503
        live.close()
        assert b"event: end" in await anext(stream)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        assert live.streams == 0
        assert live.answer(_nothing).status_code == 503

    asyncio.run(check())


def test_streams_that_begin_at_once_are_bounded_too() -> None:
    """A stream is counted when it begins, and others may begin at the same time."""

    async def check() -> None:
        live = Live(period_s=60, most=1)
        answers = [live.answer(_nothing), live.answer(_nothing)]
        streams = [aiter(e.body_iterator) for e in answers if isinstance(e, StreamingResponse)]
        assert b"retry" in await anext(streams[0])
        assert b"event: end" in await anext(streams[1])
        with pytest.raises(StopAsyncIteration):
            await anext(streams[1])
        assert live.streams == 1

    asyncio.run(check())


def test_streams_end_when_their_session_does() -> None:
    async def check() -> None:
        answers: list[dict[str, str] | None] = [{"a": "1"}, None]

        async def read() -> dict[str, str] | None:
            return answers.pop(0)

        stream = Live(period_s=0).answer(read)
        assert isinstance(stream, StreamingResponse)
        sent = [bytes(each) async for each in stream.body_iterator]  # type: ignore[arg-type]
        assert [each.split(b"\n")[0] for each in sent] == [
            b"retry: 3000",
            b"event: parts",
            b"event: end",
        ]

    asyncio.run(check())


async def hourly_row() -> IndexRow:
    app = an_app(ManualClock(NOON))
    await a_schedule(app)
    (row,) = await app.store.list_rows()
    return row


@pytest.mark.parametrize(
    ("late_ms", "is_one"),
    [(0, False), (HOUR_MS, False), (2 * HOUR_MS, False), (2 * HOUR_MS + 1, True)],
)
def test_rows_are_missed_after_two_periods(late_ms: int, is_one: bool) -> None:
    row = asyncio.run(hourly_row())
    now_ms = row.run_at_ms + late_ms
    assert is_missed(row, now_ms) is is_one
    summary = DueSummary(now_ms, has_active=True, has_rows=True, due=1, quarantined=0, oldest=[row])
    assert [each.level for each in alarms(summary)] == ["ok", "bad" if is_one else "ok"]


def test_a_silent_index_is_an_alarm() -> None:
    silent = DueSummary(0, has_active=True, has_rows=False, due=0, quarantined=0, oldest=[])
    idle = DueSummary(0, has_active=False, has_rows=False, due=0, quarantined=0, oldest=[])
    assert [each.level for each in alarms(silent)] == ["bad", "ok"]
    assert [each.level for each in alarms(idle)] == ["ok", "ok"]


def test_meters_count_what_loops_do() -> None:
    async def check() -> None:
        clock = ManualClock(NOON)
        app = an_app(clock)
        await a_schedule(app)
        clock.advance(hours=1)
        await app.store.plan_occurrences(PlanRequest())
        await app.client.enqueue("crm.send", {}, key="k")
        await app.client.enqueue("crm.send", {}, key="k")
        claims = await app.store.claim_jobs(ClaimRequest(worker=WorkerId("w")))
        first, second = claims.jobs
        ends = [decide(first, Succeeded()), decide(second, Failed("no", is_final=True))]
        await app.store.finish(ends)
        assert await app.store.finish(ends[:1]) == [first.id]
        counts = app.meters.counts
        assert (counts["plans"], counts["enqueued"]) == (1, 1)
        assert (counts["claimed"], counts["dead"], counts["refused"]) == (2, 1, 1)
        assert app.meters.ended == {"succeeded": 1, "failed": 1}
        await app.client.enqueue("crm.send", {})
        await app.store.claim_jobs(ClaimRequest(worker=WorkerId("w")))
        clock.advance(hours=1)
        assert await app.store.release_expired() == counts["rescued"] == 1

    asyncio.run(check())


def test_meters_count_retention_and_its_failures() -> None:
    async def check() -> None:
        app = an_app(ManualClock(NOON))
        keeper = app.keeper()
        await keeper.run_once()
        counts = app.meters.counts
        runs = counts["prune_runs"]
        assert runs >= 3, "jobs, ledger and finished schedules"
        assert counts["prune_failures"] == 0
        with pytest.raises(InvalidInput):
            await app.store.prune(Retention(), -1)
        assert (counts["prune_runs"], counts["prune_failures"]) == (runs, 1)

    asyncio.run(check())


def get_answers(
    app: Duly, *questions: tuple[str, dict[str, str]], between: Callable[[], Awaitable[Any]]
) -> list[httpx.Response]:
    """Send requests to the dashboard, and await `between` after each. Return the answers."""

    async def ask() -> list[httpx.Response]:
        auth = OperatorAuth(AuthOptions(metrics_token=TOKEN))
        transport = httpx.ASGITransport(dashboard_app(app, auth))
        answers = []
        async with httpx.AsyncClient(transport=transport, base_url="http://duly") as client:
            for path, headers in questions:
                answers.append(await client.get(path, headers=headers))
                await between()
        return answers

    return asyncio.run(ask())


async def _do_nothing() -> None:
    """Do nothing between requests."""


def test_probes_need_no_sign_in_and_name_no_users() -> None:
    clock = ManualClock(NOON)
    app = an_app(clock)
    asyncio.run(a_schedule(app, "0 13 * * *"))
    lives, ready = get_answers(app, ("/healthz", {}), ("/readyz", {}), between=_do_nothing)
    assert (lives.status_code, lives.json()) == (200, {"status": "ok"})
    checks = {"store": "ok", "silent_index": "ok", "missed_runs": "ok"}
    assert (ready.status_code, ready.json()) == (200, {"status": "ok", "checks": checks})
    clock.advance(days=4)
    (late,) = get_answers(app, ("/readyz", {}), between=_do_nothing)
    assert (late.status_code, late.json()["checks"]["missed_runs"]) == (503, "bad")
    assert "ada" not in late.text
    asyncio.run(app.store.remove(ScheduleKey("crm", "user:ada", "digest")))
    (silent,) = get_answers(app, ("/readyz", {}), between=_do_nothing)
    assert (silent.status_code, silent.json()["checks"]["silent_index"]) == (503, "bad")


def test_readiness_fails_when_the_store_does_not_answer() -> None:
    app = Duly("postgresql://nobody@127.0.0.1:1/nothing")
    (answer,) = get_answers(app, ("/readyz", {}), between=_do_nothing)
    assert (answer.status_code, answer.json()["checks"]) == (503, {"store": "bad"})


def test_lateness_is_observed_once() -> None:
    clock = ManualClock(NOON)
    app = an_app(clock)

    async def check() -> None:
        auth = OperatorAuth(AuthOptions(metrics_token=TOKEN))
        metrics = Metrics(app, auth, fresh_s=0)
        await a_schedule(app, "0 * * * *")
        assert b"duly_lateness_seconds_count 0.0" in await metrics.text()
        for _ in range(2):
            clock.advance(hours=1)
            await app.store.plan_occurrences(PlanRequest())
            clock.advance(seconds=4)
            claims = await app.store.claim_jobs(ClaimRequest(worker=WorkerId("w")))
            await app.store.finish([decide(job, Succeeded()) for job in claims.jobs])
        for _ in range(2):
            text = await metrics.text()
            assert b"duly_lateness_seconds_count 2.0" in text
            assert b'duly_lateness_seconds_bucket{le="2.5"} 0.0' in text
            assert b'duly_lateness_seconds_bucket{le="5.0"} 1.0' in text

    asyncio.run(check())


def test_metrics_need_a_token() -> None:
    app = an_app(ManualClock(NOON))
    wrong = {"Authorization": "Bearer wrong"}
    answers = get_answers(app, ("/metrics", {}), ("/metrics", wrong), between=_do_nothing)
    assert [each.status_code for each in answers] == [401, 401]


def test_metrics_count_stored_data_and_work_done() -> None:
    clock = ManualClock(NOON)
    app = an_app(clock)

    async def prepare() -> None:
        await a_schedule(app)
        clock.advance(hours=1, seconds=2)
        await app.store.plan_occurrences(PlanRequest())
        await app.client.enqueue("crm.send", {}, queue="mail")

    asyncio.run(prepare())
    right = {"Authorization": f"Bearer {TOKEN}"}
    (answer,) = get_answers(app, ("/metrics", right), between=_do_nothing)
    lines = set(answer.text.splitlines())
    assert {
        "duly_up 1.0",
        'duly_jobs{state="queued"} 2.0',
        'duly_queue_jobs{queue="mail",state="queued"} 1.0',
        'duly_queue_jobs_capped{queue="mail",state="queued"} 0.0',
        'duly_jobs_capped{state="queued"} 0.0',
        "duly_backlog_jobs 2.0",
        "duly_backlog_estimated 0.0",
        'duly_queue_oldest_seconds{queue="default"} 2.0',
        "duly_index_due 0.0",
        "duly_index_silent 0.0",
        "duly_missed_runs 0.0",
        'duly_occurrences{flow="crm",outcome="planned"} 1.0',
        "duly_occurrences_capped 0.0",
        'duly_schedules_missing{outcome="skipped"} 0.0',
        "duly_schedules_active 1.0",
        "duly_index_missing 0.0",
        "duly_workers_alive 0.0",
    } <= lines


def test_coverage_counts_what_should_have_run() -> None:
    """One of twelve times ran, because no worker ran. No process has reported the others."""
    clock = ManualClock(NOON)
    app = an_app(clock)

    async def prepare() -> None:
        await a_schedule(app)
        await app.store.plan_occurrences(PlanRequest(look_ahead_ms=12 * HOUR_MS))
        clock.advance(hours=12)
        claims = await app.store.claim_jobs(ClaimRequest(worker=WorkerId("w")))
        await app.store.finish([decide(job, Succeeded()) for job in claims.jobs])

    asyncio.run(prepare())
    right = {"Authorization": f"Bearer {TOKEN}"}
    (answer,) = get_answers(app, ("/metrics", right), between=_do_nothing)
    lines = answer.text.splitlines()
    assert 'duly_occurrences{flow="crm",outcome="missed"} 11.0' in lines
    assert 'duly_occurrences{flow="crm",outcome="succeeded"} 1.0' in lines
    (coverage,) = [each for each in lines if each.startswith("duly_coverage_ratio{")]
    assert float(coverage.split()[-1]) == pytest.approx(1 / 12)


def test_flows_beyond_a_hundred_share_a_label() -> None:
    counts = [OutcomeCount(f"flow-{number:03}", "missed", 2) for number in range(102)]
    family = next(iter(of_ledger(OccurrenceCounts(counts))))
    assert len(family.samples) == 101
    (rest,) = [each for each in family.samples if each.labels["flow"] == OTHER_FLOWS]
    assert rest.value == 4


def test_next_fires_include_planned_occurrences() -> None:
    """A schedule that fires every five seconds is next due in five seconds, not in a minute."""

    async def check() -> None:
        clock = ManualClock(NOON)
        app = an_app(clock)
        mine = app.schedules("crm").of(SYSTEM)
        await mine.create("often", every(seconds=5), action="send", input={})
        await mine.create("once", once(NOON + timedelta(seconds=30)), action="send", input={})
        await mine.create("later", "0 * * * *", action="send", input={})
        seen = await app.admin.monitoring.overview()
        assert [(each.name, each.run_at - NOON) for each in seen.next_fires] == [
            ("often", timedelta(seconds=5)),
            ("once", timedelta(seconds=30)),
            ("later", timedelta(hours=1)),
        ]

    asyncio.run(check())


def test_capped_counts_are_marked_and_the_backlog_is_not_capped() -> None:
    app = an_app(ManualClock(NOON))

    async def check() -> None:
        await app.client.enqueue_many("crm.send", [{}] * 10_000)
        await app.client.enqueue_many("crm.send", [{}] * 7)

    asyncio.run(check())
    right = {"Authorization": f"Bearer {TOKEN}"}
    (answer,) = get_answers(app, ("/metrics", right), between=_do_nothing)
    assert {
        'duly_jobs{state="queued"} 10000.0',
        'duly_jobs_capped{state="queued"} 1.0',
        'duly_queue_jobs_capped{queue="default",state="queued"} 1.0',
        "duly_backlog_jobs 10007.0",
    } <= set(answer.text.splitlines())
