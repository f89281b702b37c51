"""The dispatch contract over real HTTP: every status and body for stored schedules."""

import asyncio
import http.client

import pytest

from duly.flows.collections import ScheduleCollection
from duly.flows.flow import Flow
from duly.model.jobs import JobState
from duly.model.principals import Principal
from duly.model.retries import RetryPolicy
from duly.model.schedules import Policies
from duly.model.scopes import SYSTEM, Scope, dispatch_id, user, workspace
from tests.integration.http.conftest import Serve
from tests.integration.http.site import BEARER, Reply, Site

AT = "2026-05-04T09:00:00+00:00"
ALLOW = Policies(overlap="allow")
NAMES = ("declared", "explicit")


def mail() -> Flow:
    flow = Flow("mail")

    @flow.action
    async def send(what: dict[str, object] | None = None) -> None: ...

    @flow.action
    async def other() -> None: ...

    return flow


def store(site: Site, scope: Scope, name: str, **options: object) -> None:
    schedules = ScheduleCollection(site.app.store, "mail").of(scope)
    said = {"action": "send", "input": {"to": "ada"}, "hand_over": "http", "policies": ALLOW}
    site.run(schedules.create(name, "0 9 * * *", **(said | options)))  # type: ignore[arg-type]


@pytest.fixture
def site(serve: Serve) -> Site:
    found = serve(mail())
    store(found, user("u_1"), "digest")
    return found


def test_a_dispatch_makes_one_job_and_says_which(site: Site) -> None:
    reply = site.dispatch("u_1/digest", {"nominalFireTime": AT})
    (job,) = site.jobs()
    assert reply.status == 202
    assert reply.body == {
        "status": "accepted",
        "scheduleId": "u_1/digest",
        "origin": "dynamic",
        "requestId": job.id,
    }
    assert (job.action, job.input, job.state) == ("mail.send", '{"to":"ada"}', JobState.QUEUED)


@pytest.mark.parametrize("hand_over", ["http", "external"])
def test_a_dispatched_job_runs_as_its_action_declares(serve: Serve, hand_over: str) -> None:
    flow, own = mail(), Policies(delivery="at_least_once", overlap="allow")

    @flow.action(queue="slow", delivery="at_most_once", timeout_s=7, retry=RetryPolicy(attempts=9))
    async def charge() -> None: ...

    site = serve(flow)
    options = {"action": "charge", "input": None, "hand_over": hand_over}
    store(site, user("u_1"), "declared", **options)
    store(site, user("u_1"), "explicit", **options, policies=own)
    replies = [site.dispatch(f"u_1/{name}", {"nominalFireTime": AT}) for name in NAMES]
    jobs = {job.id: job for job in site.jobs()}
    declared, explicit = (jobs[reply.body["requestId"]] for reply in replies)
    assert (declared.queue, declared.timeout_ms, declared.retry.attempts) == ("slow", 7_000, 9)
    assert (declared.delivery, declared.max_attempts) == ("at_most_once", 1)
    assert (explicit.delivery, explicit.max_attempts) == ("at_least_once", 9)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_only_post_is_a_dispatch(site: Site, method: str) -> None:
    path = "/api/flows/mail/schedules/u_1/digest/dispatch"
    reply = site.ask(method, path)
    assert (reply.status, reply.headers["allow"]) == (405, "POST")
    assert site.ask(method, path, headers={}).status == 405


def test_an_id_may_span_segments_and_reaches_the_resolver_as_sent(serve: Serve) -> None:
    flow, seen = mail(), []

    @flow.resolve
    def resolve(schedule_id: str, ctx: object) -> None:
        seen.append(schedule_id)

    site = serve(flow)
    for raw in ("u_1/weekly-digest", "u_1/nested/key", "agent:u_42:lead", "a%2Fb/c%25"):
        assert site.dispatch(raw).status == 404
    assert seen == ["u_1/weekly-digest", "u_1/nested/key", "agent:u_42:lead", "a%2Fb/c%25"]


def test_names_of_128_are_dispatched_and_of_129_are_bad_ids(site: Site) -> None:
    store(site, user("u_1"), "k" * 128)
    assert site.dispatch("u_1/" + "k" * 128).status == 202
    for raw in ("u_1/" + "k" * 129, "u_1/%zz", "u_1/%FF", "u_1/a%00b", "u" * 1_024 + "/k", ""):
        reply = site.dispatch(raw)
        assert (reply.status, reply.body) == (400, {"error": "invalid_schedule_id"})


@pytest.mark.parametrize(
    ("scope", "name"),
    [
        (user("a/b"), "c"),
        (user("a"), "b/c"),
        (user("auth0|abc"), "k|1"),
        (user("ada@example.org"), "100%"),
        (user("%41"), "%2F"),
        (user("Jürgen"), "täglich ☕"),
        (user("U.P"), "k?#&= +"),
        (workspace("Acme/EU"), "all hands"),
        (SYSTEM, "night:ly"),
    ],
)
def test_ids_with_any_characters_reach_exactly_their_schedule(
    serve: Serve, scope: Scope, name: str
) -> None:
    site = serve(mail())
    # Names that a wrong decoding of the id would match.
    for near_scope, near_name in ((user("a"), "b"), (user("A"), "/"), (user("b"), "c")):
        store(site, near_scope, near_name, input={"to": "neighbour"})
    if (scope, name) != (user("b"), "c"):
        store(site, scope, name, input={"to": name})
    assert site.dispatch(dispatch_id(scope, name)).status == 202
    (job,) = site.jobs()
    assert job.scope == str(scope)
    assert "neighbour" not in job.input


@pytest.mark.parametrize("raw", ["x", "/k", "u/", "u_2/digest", "u_1/Digest", "system/digest"])
def test_ids_of_no_schedule_are_not_found(site: Site, raw: str) -> None:
    reply = site.dispatch(raw)
    assert (reply.status, reply.body) == (404, {"error": "schedule_not_found"})


def test_a_custom_parser_reads_ids_of_another_form(serve: Serve) -> None:
    def parse(text: str) -> tuple[Scope, str] | None:
        kind, _, rest = text.partition(":")
        owner, _, lead = rest.partition(":")
        return (user(owner), f"followup-{lead}") if kind == "agent-followup" else None

    site = serve(mail(), parse_id=parse)
    store(site, user("u_42"), "followup-lead-456")
    assert site.dispatch("agent-followup:u_42:lead-456").status == 202
    assert [job.scope for job in site.jobs()] == ["user:u_42"]
    for raw in ("agent-followup::", "agent-followup:u_42:lead-4", "u_42/lead-456"):
        assert site.dispatch(raw).status == 404
    assert site.dispatch("u_42/followup-lead-456").status == 202


def test_a_disabled_schedule_is_not_found(site: Site) -> None:
    mine = ScheduleCollection(site.app.store, "mail").of(user("u_1"))
    site.run(mine.pause("digest"))
    assert site.dispatch("u_1/digest").error == "schedule_not_found"
    site.run(mine.resume("digest"))
    assert site.dispatch("u_1/digest").status == 202


def test_a_deleted_schedule_is_not_found(site: Site) -> None:
    site.run(ScheduleCollection(site.app.store, "mail").of(user("u_1")).delete("digest"))
    assert site.run(site.app.store.list_rows()) == []
    assert site.dispatch("u_1/digest").error == "schedule_not_found"
    assert site.jobs() == []


def test_unknown_flow(site: Site) -> None:
    reply = site.dispatch("u_1/digest", flow="male")
    assert (reply.status, reply.body) == (404, {"error": "flow_not_found"})


@pytest.mark.parametrize("body", [None, b"", b"  ", b"{}", b'{"later": 1}'])
def test_an_empty_body_takes_the_servers_time(site: Site, body: bytes | None) -> None:
    assert site.dispatch("u_1/digest", body).status == 202
    (job,) = site.jobs()
    assert job.nominal_ms == site.clock.now_ms()


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b"\xff",
        b'{"nominalFireTime": 5}',
        b'{"nominalFireTime": "soon"}',
        b'{"nominalFireTime": "2026-05-04T09:00:00"}',
        b'{"nominalFireTime": "1970-01-01T00:00:00Z"}',
        b'{"nominalFireTime": "9999-12-31T23:59:59-23:59"}',
        b'{"idempotencyKey": 7}',
        b'{"idempotencyKey": ""}',
        b'{"idempotencyKey": "' + b"k" * 256 + b'"}',
        b'{"scheduleId": "u_2/digest"}',
        b'{"flow": "other"}',
        b"[" * 10_000,
    ],
)
def test_a_bad_body_is_refused_with_a_reason(site: Site, body: bytes) -> None:
    reply = site.dispatch("u_1/digest", body)
    assert (reply.status, reply.error) == (400, "invalid_body")
    assert reply.body["message"]
    assert site.jobs() == []


def test_a_body_that_is_too_large_is_not_read(site: Site) -> None:
    large = b'{"idempotencyKey": "' + b" " * 16 * 1024 + b'"}'
    for headers in (BEARER, {}):
        assert site.dispatch("u_1/digest", large, headers).status == 413
    assert site.dispatch("u_1/digest", b" " * 16 * 1024).status == 202


def test_a_streamed_body_that_is_too_large_is_cut_off(site: Site) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=30)
    parts = (b" " * 4096 for _ in range(5))
    path = "/api/flows/mail/schedules/u_1/digest/dispatch"
    connection.request("POST", path, parts, dict(BEARER), encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()


def test_the_same_occurrence_is_dispatched_once(site: Site) -> None:
    assert site.dispatch("u_1/digest", {"nominalFireTime": AT}).status == 202
    for written in (AT, "2026-05-04T09:00:00Z", "2026-05-04T11:00:00+02:00"):
        reply = site.dispatch("u_1/digest", {"nominalFireTime": written})
        duplicate = {"status": "duplicate", "scheduleId": "u_1/digest"}
        assert (reply.status, reply.body) == (200, duplicate)
    site.clock.advance(hours=20)  # not only within a window
    assert site.dispatch("u_1/digest", {"nominalFireTime": AT}).body["status"] == "duplicate"
    assert len(site.jobs()) == 1


def test_the_same_key_is_dispatched_once_for_its_schedule_time_or_not(site: Site) -> None:
    first = site.dispatch("u_1/digest", {"idempotencyKey": "k1"})
    again = site.dispatch("u_1/digest", {"idempotencyKey": "k1", "nominalFireTime": AT})
    other = site.dispatch("u_1/digest", {"idempotencyKey": "k2"})
    assert [first.status, again.status, other.status] == [202, 200, 202]
    assert again.body["status"] == "duplicate"
    assert len(site.jobs()) == 2


def test_a_key_reaches_no_further_than_its_schedule(serve: Serve) -> None:
    site = serve(mail())
    said = {"action": "send", "input": {"to": "ada"}, "policies": ALLOW}
    every = [("ada", "digest"), ("bob", "digest"), ("bob", "news")]
    for who, name in every:
        mine = ScheduleCollection(site.app.store, "mail").of(user(who), workspace="acme")
        site.run(mine.create(name, "0 9 * * *", **said))  # type: ignore[arg-type]
    day = {"idempotencyKey": "2026-10-05"}
    first = [site.dispatch(f"{who}/{name}", day).status for who, name in every]
    again = [site.dispatch(f"{who}/{name}", day).body["status"] for who, name in every]
    assert (first, again) == ([202] * 3, ["duplicate"] * 3)
    jobs = site.jobs()
    # The order of ids made in the same millisecond is random.
    assert sorted((job.scope, job.workspace) for job in jobs) == [
        (f"user:{who}", "acme") for who, _ in every
    ]
    assert all("2026-10-05" in str(job.metadata) for job in jobs)


def test_requests_without_a_time_or_key_are_never_duplicates(site: Site) -> None:
    """The clock stands still, so all three come in the same millisecond."""
    assert [site.dispatch("u_1/digest").status for _ in range(3)] == [202] * 3
    assert len(site.jobs()) == 3


def test_equal_requests_at_once_make_one_job(site: Site) -> None:
    async def all_at_once() -> list[Reply]:
        asked = (
            asyncio.to_thread(site.dispatch, "u_1/digest", {"nominalFireTime": AT})
            for _ in range(16)
        )
        return list(await asyncio.gather(*asked))

    replies = asyncio.run(all_at_once())
    assert sorted(reply.status for reply in replies) == [200] * 15 + [202]
    assert len(site.jobs()) == 1


def test_a_run_in_flight_makes_the_next_one_skipped(serve: Serve) -> None:
    site = serve(mail())
    store(site, user("u_1"), "digest", policies=Policies(overlap="skip"))
    first = site.dispatch("u_1/digest", {"nominalFireTime": AT})
    second = site.dispatch("u_1/digest", {"nominalFireTime": "2026-05-05T09:00:00Z"})
    assert (second.status, second.body) == (
        200,
        {"status": "skipped", "reason": "in_flight", "requestId": first.body["requestId"]},
    )
    assert len(site.jobs()) == 1


def test_the_action_runs_as_the_owner_and_never_as_the_gateway(serve: Serve) -> None:
    site = serve(mail())
    store(site, user("u_7"), "digest")
    store(site, workspace("acme"), "digest")
    for raw in ("u_7/digest", "workspace:acme/digest"):
        assert site.dispatch(raw).status == 202
    assert sorted((job.scope, job.workspace) for job in site.jobs()) == [
        ("user:u_7", "user:u_7"),
        ("workspace:acme", "acme"),
    ]


def test_authorize_can_deny_a_dispatch(serve: Serve) -> None:
    asked: list[tuple[str | None, str]] = []

    def authorize(principal: Principal, schedule: object) -> bool:
        asked.append((principal.user_id, schedule.name))  # type: ignore[attr-defined]
        return principal.user_id != "u_1"

    site = serve(mail(), authorize=authorize)
    store(site, user("u_1"), "digest")
    store(site, user("u_2"), "digest")
    reply = site.dispatch("u_1/digest", {"idempotencyKey": "k"})
    assert (reply.status, reply.body) == (403, {"error": "denied"})
    assert site.dispatch("u_2/digest").status == 202
    assert asked == [("u_1", "digest"), ("u_2", "digest")]


def test_an_authorize_that_raises_dispatches_nothing(serve: Serve) -> None:
    def authorize(principal: Principal, schedule: object) -> bool:
        raise RuntimeError("db.internal is unreachable")

    site = serve(mail(), authorize=authorize)
    store(site, user("u_1"), "digest")
    reply = site.dispatch("u_1/digest")
    assert (reply.status, reply.error) == (500, "dispatch_failed")
    assert "db.internal" not in str(reply.body)
    assert site.jobs() == []


@pytest.mark.parametrize("hand_over", ["external", "http", "jobs"])
def test_used_up_schedules_are_not_found(serve: Serve, hand_over: str) -> None:
    site = serve(mail())
    store(site, user("u_1"), "twice", hand_over=hand_over, max_runs=2)
    bodies = [{"nominalFireTime": AT}, {}, {}, {"nominalFireTime": "2026-05-05T09:00:00+00:00"}]
    replies = [site.dispatch("u_1/twice", body) for body in bodies]
    assert [reply.status for reply in replies] == [202, 202, 404, 404]
    assert [reply.body for reply in replies[2:]] == [{"error": "schedule_not_found"}] * 2
    assert site.dispatch("u_1/twice", bodies[0]).body["status"] == "duplicate"
    assert len(site.jobs()) == 2
