"""The tick against real servers: what it posts, how it handles answers, and who may call it."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from duly.dispatch import TickOptions
from duly.dispatch.options import ParseId
from duly.dispatch.tick.aws_lambda import LambdaTick
from duly.dispatch.tick.tick import Tick, TickPlace, TickReport
from duly.errors import BackendUnavailable, InvalidInput
from duly.flows.collections import ScheduleCollection
from duly.flows.flow import Flow
from duly.model.dispatches import Dispatching
from duly.model.ledger import Occurrence, OccurrenceState
from duly.model.schedules import Policies, Schedule
from duly.model.scopes import Scope, user
from duly.rules.dispatches import MAX_TRIES
from duly.stores import MemoryStore
from duly.testing import ManualClock
from tests.integration.http.conftest import Serve
from tests.integration.http.site import BEARER, NOW, SECRET, Site, served

State = OccurrenceState


class Endpoint:
    """A foreign server that returns given answers and records every request."""

    def __init__(self, answer: Callable[[str], tuple[int, bytes]]) -> None:
        self.answer = answer
        self.requests: list[dict[str, Any]] = []
        self.port = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body = (await receive())["body"]
        headers = {name.decode(): text.decode() for name, text in scope["headers"]}
        path = scope["raw_path"].decode()
        self.requests.append({"path": path, "headers": headers, "body": json.loads(body)})
        status, content = self.answer(path)
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": content})


@contextmanager
def endpoint(answer: Callable[[str], tuple[int, bytes]]) -> Iterator[Endpoint]:
    found = Endpoint(answer)
    with served(found) as found.port:
        yield found


class Due:
    """Schedules of user u_1 on a memory store, all due at 09:00."""

    def __init__(self, *names: str, delivery: str = "at_least_once") -> None:
        self.clock = ManualClock(NOW)
        self.store = MemoryStore(self.clock)
        self.mine = ScheduleCollection(self.store, "mail").of(user("u_1"))
        policies = Policies(delivery=delivery, overlap="allow")  # type: ignore[arg-type]
        self.schedules = {
            name: self._run(
                self.mine.create(
                    name, "0 9 * * *", action="send", hand_over="http", policies=policies
                )
            )
            for name in names
        }
        self.clock.advance(hours=2)

    def _run(self, coroutine: Any) -> Schedule:
        return asyncio.run(coroutine)  # type: ignore[no-any-return]

    def tick(self, port: int, **options: Any) -> TickReport:
        async def once() -> TickReport:
            place = TickPlace(f"http://127.0.0.1:{port}", SECRET, ("mail",))
            tick = Tick(self.store, place, TickOptions(**options), clock=self.clock)
            try:
                return await tick.run_once()
            finally:
                await tick.close()

        return asyncio.run(once())

    def row(self, name: str) -> Occurrence:
        rows = asyncio.run(self.store.list_occurrences(self.schedules[name].id))
        return rows[0]


def test_a_post_carries_secret_type_and_the_claimed_time() -> None:
    due = Due("digest")
    due.clock.advance(minutes=30)  # the tick is late; the occurrence is still that of 09:00
    with endpoint(lambda _: (202, b"{}")) as there:
        assert due.tick(there.port) == TickReport(posted=1, closed=1)
    (request,) = there.requests
    assert request["path"] == "/api/flows/mail/schedules/u_1/digest/dispatch"
    assert request["headers"]["authorization"] == f"Bearer {SECRET}"
    assert request["headers"]["content-type"] == "application/json"
    assert request["body"]["nominalFireTime"] == "2026-05-04T09:00:00+00:00"
    assert due.row("digest").state is State.SUCCEEDED


def test_nothing_fires_until_a_tick_or_a_post(serve: Serve) -> None:
    site = _http_site(serve)
    site.clock.advance(hours=3)
    assert site.jobs() == []
    assert site.dispatch("u_1/digest").status == 202
    assert len(site.jobs()) == 1


def test_one_failure_does_not_stop_the_others() -> None:
    due = Due("a", "b", "c", "d", "e")
    with endpoint(lambda path: (400 if "/c/" in path else 202, b"{}")) as there:
        report = due.tick(there.port)
    assert report == TickReport(posted=5, closed=4, failed=1)
    assert due.row("c").state is State.FAILED
    assert "400" in str(due.row("c").reason)


@pytest.mark.parametrize("status", [500, 503, 409, 425, 429])
def test_a_transient_failure_is_posted_again_with_the_same_time(status: int) -> None:
    due = Due("digest")
    answers = iter([(status, b""), (202, b"")])
    with endpoint(lambda _: next(answers)) as there:
        assert due.tick(there.port) == TickReport(posted=1, again=1)
        assert due.row("digest").state is State.DISPATCHING
        assert due.tick(there.port) == TickReport()  # not before its time
        due.clock.advance(seconds=10)
        assert due.tick(there.port) == TickReport(posted=1, closed=1)
    assert [each["body"]["nominalFireTime"] for each in there.requests] == [
        "2026-05-04T09:00:00+00:00"
    ] * 2


def test_at_most_once_is_never_posted_again() -> None:
    due = Due("digest", delivery="at_most_once")
    with endpoint(lambda _: (500, b"")) as there:
        assert due.tick(there.port) == TickReport(posted=1, failed=1)
        due.clock.advance(hours=1)
        assert due.tick(there.port) == TickReport()
    assert len(there.requests) == 1
    assert due.row("digest").state is State.FAILED


def test_the_last_post_that_is_made_counts_as_failed() -> None:
    due, reports = Due("digest"), list[TickReport]()
    with endpoint(lambda _: (500, b"")) as there:
        for _ in range(MAX_TRIES):
            reports.append(due.tick(there.port))
            due.clock.advance(hours=1)
    assert due.row("digest").state is State.FAILED
    assert reports[:-1] == [TickReport(posted=1, again=1)] * (MAX_TRIES - 1)
    assert reports[-1] == TickReport(posted=1, failed=1)


def test_a_final_answer_is_not_posted_again() -> None:
    due = Due("digest")
    with endpoint(lambda _: (404, b"<html>no such page")) as there:
        due.tick(there.port)
        due.clock.advance(hours=1)
        assert due.tick(there.port) == TickReport()
    assert due.row("digest").state is State.FAILED


def test_an_unknown_schedule_is_quarantined_after_three_posts() -> None:
    due = Due("digest")
    with endpoint(lambda _: (404, b'{"error": "schedule_not_found"}')) as there:
        for _ in range(3):
            assert due.tick(there.port).failed == 1
            assert len(asyncio.run(due.store.list_quarantined())) == (len(there.requests) == 3)
            due.clock.advance(days=1)
        assert due.tick(there.port) == TickReport()


def test_an_unreachable_endpoint_is_posted_again() -> None:
    due, told = Due("digest"), []
    report = due.tick(1, on_dispatch=lambda row, status: told.append((row.name, status)))
    assert report == TickReport(posted=1, again=1)
    assert told == [("digest", 0)]
    assert "no answer" in str(due.row("digest").reason)


def test_a_hung_endpoint_times_out() -> None:
    due, hanging = Due("digest"), threading.Event()

    class Hung(Endpoint):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            del send
            if scope["type"] == "http":
                await receive()  # the request
                hanging.set()
                await receive()  # until the client disconnects

    there = Hung(lambda _: (200, b""))
    with served(there) as port:
        report = due.tick(port, timeout_s=0.05)
    assert hanging.is_set()
    assert report == TickReport(posted=1, again=1)


def test_an_observer_that_raises_does_not_stop_the_tick(caplog: pytest.LogCaptureFixture) -> None:
    due = Due("a", "b")

    async def observe(row: Dispatching, status: int) -> None:
        raise ValueError(f"{row.name} {status}")

    with endpoint(lambda _: (202, b"")) as there:
        assert due.tick(there.port, on_dispatch=observe) == TickReport(posted=2, closed=2)
    assert "on_dispatch raised" in caplog.text


def test_a_tick_keeps_its_limits_of_posts_and_claims() -> None:
    due, claims = Due(*(f"s{n:02}" for n in range(23))), []
    claim_dispatches = due.store.claim_dispatches

    async def counted(claim: Any) -> Any:
        claims.append(claim.limit)
        return await claim_dispatches(claim)

    due.store.claim_dispatches = counted  # type: ignore[method-assign]
    with endpoint(lambda _: (202, b"")) as there:
        assert due.tick(there.port, concurrency=4, max_per_tick=20).posted == 20
        assert max(claims) <= 4
        assert due.tick(there.port, concurrency=4, max_per_tick=20).posted == 3


def test_a_tick_posts_only_its_own_flows() -> None:
    due = Due("digest")
    theirs = ScheduleCollection(due.store, "other").of(user("u_1"))
    asyncio.run(theirs.create("k", "0 9 * * *", action="send", hand_over="http"))
    due.clock.advance(days=1)
    with endpoint(lambda _: (202, b"")) as there:
        due.tick(there.port)
    assert {each["path"].split("/")[3] for each in there.requests} == {"mail"}


def test_a_lost_answer_to_a_claim_is_asked_for_again() -> None:
    due = Due("digest")
    claim_dispatches = due.store.claim_dispatches
    lost: list[str] = []

    async def loses(claim: Any) -> Any:
        rows = await claim_dispatches(claim)
        if not lost:
            lost.append(claim.claim_id)
            raise BackendUnavailable("the answer was lost")
        assert claim.claim_id == lost[0]
        return rows

    due.store.claim_dispatches = loses  # type: ignore[method-assign]
    with endpoint(lambda _: (202, b"")) as there:
        assert due.tick(there.port).posted == 1


def test_a_tick_without_an_index_or_flows_is_refused() -> None:
    place = TickPlace("http://127.0.0.1", SECRET, ("mail",))
    with pytest.raises(InvalidInput, match="needs an index"):
        Tick(object(), place)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="declares none"):
        Tick(MemoryStore(), TickPlace("http://127.0.0.1", SECRET))


def _http_site(serve: Serve, parse_id: ParseId | None = None, **tick: Any) -> Site:
    flow = Flow("mail")

    @flow.action
    async def send() -> None: ...

    site = serve(flow, parse_id=parse_id, tick=TickOptions(**tick))
    mine = ScheduleCollection(site.app.store, "mail").of(user("u_1"))
    policies = Policies(overlap="allow")
    for name in ("digest", "news"):
        site.run(mine.create(name, "0 9 * * *", action="send", hand_over="http", policies=policies))
    return site


def _aim(site: Site) -> None:
    """Set the base URL of the tick, which is known only after the site is served."""
    site.set_http(tick=TickOptions(base_url=site.url))


def test_the_route_answers_204_200_401_and_500(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DULY_BASE_URL", raising=False)
    site = _http_site(serve)
    assert site.ask("POST", "/api/tick", headers={}).status == 401
    unset = site.ask("POST", "/api/tick")
    assert (unset.status, unset.error) == (500, "tick_not_configured")
    assert "DULY_BASE_URL" in unset.body["message"]
    _aim(site)
    assert site.ask("POST", "/api/tick").status == 204
    site.clock.advance(hours=2)
    reply = site.ask("GET", "/api/tick")
    assert (reply.status, reply.body) == (
        200,
        {"posted": 2, "closed": 2, "again": 0, "failed": 0},
    )
    assert sorted(job.schedule_id or "" for job in site.jobs()) == sorted(
        each.id for each in site.run(site.app.store.list_schedules("mail", "user:u_1"))
    )
    assert site.ask("GET", "/api/tick").status == 204

    async def away(claim: object) -> None:
        raise BackendUnavailable("db.internal refused")

    monkeypatch.setattr(site.app.store, "claim_dispatches", away)
    failed = site.ask("GET", "/api/tick")
    assert (failed.status, failed.error) == (500, "claim_failed")
    assert "db.internal" not in str(failed.body)
    assert site.ask("PUT", "/api/tick").headers["allow"] == "POST, GET"


def test_a_tick_works_with_a_custom_id_parser(serve: Serve) -> None:
    def parse(text: str) -> tuple[Scope, str] | None:
        owner, between, name = text.partition("--")
        return (user(owner), name) if between else None

    site = _http_site(serve, parse_id=parse)
    _aim(site)
    for _ in range(4):
        site.clock.advance(days=1)
        assert site.ask("POST", "/api/tick").status == 200
    states = {each.state for each in site.run(site.app.store.list_schedules("mail", "user:u_1"))}
    assert states == {"active"}
    assert site.dispatch("u_1--digest").status == 202


def test_the_ledger_follows_the_job_that_the_endpoint_made(serve: Serve) -> None:
    site = _http_site(serve)
    _aim(site)
    site.clock.advance(hours=2)
    site.ask("POST", "/api/tick", headers=BEARER)
    mine = site.run(site.app.store.list_schedules("mail", "user:u_1"))
    for schedule in mine:
        (row,) = site.run(site.app.store.list_occurrences(schedule.id))
        assert (row.state, row.job_id is not None) == (State.FIRED, True)


def test_a_lambda_ticks_for_aws_and_for_holders_of_the_secret(serve: Serve) -> None:
    site = _http_site(serve)
    _aim(site)
    handler = LambdaTick(site.app)
    assert handler({"source": "aws.events"}, None)["statusCode"] == 204
    site.clock.advance(hours=2)
    for headers in (None, {}, {"Authorization": "Bearer wrong-wrong-wrong"}):
        assert handler({"headers": headers}, None)["statusCode"] == 401
    answer = handler({"headers": {"Authorization": f"Bearer {SECRET}"}}, None)
    assert (answer["statusCode"], json.loads(answer["body"])["posted"]) == (200, 2)
    handler.close()


def test_an_id_is_sent_as_it_is_written() -> None:
    due = Due("k:1|%/a@b")
    with endpoint(lambda _: (202, b"")) as there:
        due.tick(there.port)
    assert there.requests[0]["path"].split("/")[-2] == "k%3A1%7C%25%2Fa%40b"


def test_an_observer_sees_every_status() -> None:
    due, told = Due("digest"), list[int]()
    answers = iter([(500, b""), (202, b"")])
    with endpoint(lambda _: next(answers)) as there:
        for _ in range(2):
            due.tick(there.port, on_dispatch=lambda _, status: told.append(status))
            due.clock.advance(minutes=1)
    due.clock.advance(days=1)
    due.tick(1, on_dispatch=lambda _, status: told.append(status))
    assert told == [500, 202, 0]


def test_a_tick_every_minute_is_late_by_less_than_one() -> None:
    due = Due()
    due.clock.set(NOW)
    for minute in range(3):
        rule = f"{minute} 9 * * *"
        asyncio.run(due.mine.create(f"s{minute}", rule, action="send", hand_over="http"))
    due.clock.set(NOW + timedelta(hours=1, minutes=58, seconds=30))
    posted: list[tuple[str, str]] = []
    with endpoint(lambda _: (202, b"")) as there:
        for _ in range(5):
            before = len(there.requests)
            due.tick(there.port)
            posted += [
                (each["body"]["nominalFireTime"][11:16], f"{due.clock.now():%H:%M:%S}")
                for each in there.requests[before:]
            ]
            due.clock.advance(minutes=1)
    assert posted == [("09:00", "09:00:30"), ("09:01", "09:01:30"), ("09:02", "09:02:30")]


def test_a_late_tick_records_its_lateness() -> None:
    due = Due("digest")
    due.clock.advance(minutes=30)
    with endpoint(lambda _: (202, b"")) as there:
        due.tick(there.port)
    row = due.row("digest")
    assert row.fired_at_ms is not None
    assert (row.nominal_ms, row.fired_at_ms - row.run_at_ms) == (row.run_at_ms, 30 * 60_000)
