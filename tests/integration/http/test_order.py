"""The order of the checks, and that nothing is revealed before authentication."""

from typing import Any

import pytest

from duly.dispatch import Gateway, ResolveContext
from duly.dispatch.auth.signing import sign
from duly.errors import BackendUnavailable
from duly.flows.collections import ScheduleCollection
from duly.flows.flow import Flow
from duly.flows.resolved import ScheduleConfig
from duly.model.principals import Principal
from duly.model.schedules import Policies
from duly.model.scopes import user
from tests.integration.http.conftest import Serve
from tests.integration.http.site import BEARER, SECRET, Reply, Site

KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
AT = "2026-05-04T09:00:00+00:00"
WRONG = {"authorization": "Bearer not-the-secret-at-all"}


def mail(**said: Any) -> Flow:
    flow = Flow("mail")

    @flow.action
    async def send(what: dict[str, object]) -> None: ...

    if said:

        @flow.resolve
        def resolve(schedule_id: str, ctx: ResolveContext) -> ScheduleConfig | None:
            usual: dict[str, Any] = {"action": "send", "principal": Principal(), "input": {}}
            return ScheduleConfig(**(usual | said))

    return flow


def create(site: Site, name: str = "digest", **options: Any) -> None:
    mine = ScheduleCollection(site.app.store, "mail").of(user("u_1"))
    policies = Policies(overlap="allow")
    usual: dict[str, Any] = {
        "action": "send",
        "input": {},
        "hand_over": "http",
        "policies": policies,
    }
    site.run(mine.create(name, "0 9 * * *", **(usual | options)))


def test_every_check_answers_before_the_next(serve: Serve) -> None:
    """One request fails every check; as it is fixed step by step, the next check answers."""
    site = serve(mail(enabled=False, action="gone"), authorize=lambda *_: False)
    path = "/api/flows/{flow}/schedules/{id}/dispatch"
    large, bad, fine = b"x" * 20_000, b"{", b""
    steps = [
        ("GET", "male", "%zz", large, WRONG, 405, "method_not_allowed"),
        ("POST", "male", "%zz", large, WRONG, 413, "body_too_large"),
        ("POST", "male", "%zz", bad, WRONG, 401, "unauthorized"),
        ("POST", "male", "%zz", bad, BEARER, 400, "invalid_schedule_id"),
        ("POST", "male", "u_1/k", bad, BEARER, 404, "flow_not_found"),
        ("POST", "mail", "u_1/k", bad, BEARER, 400, "invalid_body"),
        ("POST", "mail", "u_1/k", fine, BEARER, 404, "schedule_not_found"),
    ]
    for method, flow, schedule_id, body, headers, status, error in steps:
        reply = site.ask(method, path.format(flow=flow, id=schedule_id), body, headers)
        assert (reply.status, reply.error) == (status, error)


def test_the_checks_behind_the_resolver_keep_their_order(serve: Serve) -> None:
    def denied(*_: object) -> bool:
        return False

    def steps() -> list[tuple[dict[str, Any], Any, int, str]]:
        raises = {"input": lambda _: 1 / 0}
        return [
            ({"action": "gone", **raises}, denied, 400, "invalid_schedule"),
            (raises, denied, 403, "denied"),
            (raises, None, 500, "dispatch_failed"),
        ]

    for said, authorize, status, error in steps():
        site = serve(mail(**said), authorize=authorize)
        reply = site.dispatch("u_1/k")
        assert (reply.status, reply.error) == (status, error)


def test_a_duplicate_is_answered_before_other_checks(serve: Serve) -> None:
    site = serve(mail())
    create(site)
    assert site.dispatch("u_1/digest", {"nominalFireTime": AT}).status == 202
    site.run(ScheduleCollection(site.app.store, "mail").of(user("u_1")).pause("digest"))
    assert site.dispatch("u_1/digest", {"nominalFireTime": AT}).body["status"] == "duplicate"
    assert site.dispatch("u_1/digest").error == "schedule_not_found"


@pytest.mark.parametrize("headers", [{}, WRONG, {"authorization": f"Basic {SECRET}"}])
def test_unauthenticated_requests_all_get_the_same_answer(
    serve: Serve, headers: dict[str, str]
) -> None:
    site = serve(mail())
    create(site)
    asked = [
        ("POST", "/api/flows/mail/schedules/u_1/digest/dispatch"),
        ("POST", "/api/flows/mail/schedules/u_1/nothing/dispatch"),
        ("POST", "/api/flows/nothing/schedules/u_1/digest/dispatch"),
        ("POST", "/api/flows/mail/schedules/%zz/dispatch"),
        ("GET", "/api/flows/mail/schedules"),
        ("GET", "/api/flows/nothing/schedules"),
        ("POST", "/api/flows/mail/webhooks/nothing"),
        ("POST", "/api/flows/nothing/webhooks/nothing"),
        ("GET", "/api/flows/mail/my/schedules"),
        ("GET", "/api/flows/nothing/my/schedules"),
        ("GET", "/api/tick"),
        ("POST", "/api/tick"),
        ("GET", "/api/nothing"),
        ("GET", "/nothing"),
        ("GET", "/"),
    ]
    replies = [site.ask(method, path, headers=headers) for method, path in asked]
    for reply in replies:
        assert (reply.status, reply.body) == (401, {"error": "unauthorized"})
        assert _headers_without_date(reply) == _headers_without_date(replies[0])
    assert site.ask("GET", "/api/nothing").error == "not_found"


def _headers_without_date(reply: Reply) -> dict[str, str]:
    return {name: text for name, text in reply.headers.items() if name != "date"}


def test_without_a_secret_everything_is_closed_and_the_log_says_so(
    serve: Serve, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DULY_DISPATCH_SECRETS", raising=False)
    site = serve(mail(), gateways=None)
    for headers in ({}, {"authorization": "Bearer "}, {"authorization": "Bearer"}, BEARER):
        assert site.dispatch("u_1/digest", headers=headers).status == 401
        assert site.ask("POST", "/api/tick", headers=headers).status == 401
    assert "DULY_DISPATCH_SECRETS" in caplog.text


def test_the_secret_comes_from_the_environment_and_can_be_changed(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = "old-secret-0123456789", "new-secret-0123456789"
    for secrets, statuses in ((old, (404, 401)), (f"{new},{old}", (404, 404)), (new, (401, 404))):
        monkeypatch.setenv("DULY_DISPATCH_SECRETS", secrets)
        site = serve(mail(), gateways=None)
        found = [
            site.dispatch("u/k", headers={"authorization": f"Bearer {each}"}).status
            for each in (old, new)
        ]
        assert tuple(found) == statuses


class TestSigned:
    """Dispatches with a signature instead of the secret."""

    @pytest.fixture
    def site(self, serve: Serve) -> Site:
        found = serve(mail(), gateways=[Gateway(KEY)])
        create(found)
        create(found, "other")
        return found

    def send(self, site: Site, raw: str, body: bytes, *, late_s: int = 0, name: str = "m") -> Reply:
        at_s = site.clock.now_ms() // 1000 - late_s
        return site.dispatch(raw, body, sign(KEY, name, at_s, body))

    def aimed(self, raw: str, more: str = "") -> bytes:
        return f'{{"flow": "mail", "scheduleId": "{raw}"{more}}}'.encode()

    def test_a_signed_dispatch_is_taken_once(self, site: Site) -> None:
        body = self.aimed("u_1/digest")
        assert self.send(site, "u_1/digest", body).status == 202
        site.clock.advance(minutes=4)
        replayed = self.send(site, "u_1/digest", body, late_s=240)
        assert (replayed.status, replayed.body["status"]) == (200, "duplicate")
        assert self.send(site, "u_1/digest", body, name="m2").status == 202
        assert len(site.jobs()) == 2

    def test_a_message_is_taken_once_for_its_schedule_however_long_its_id(self, site: Site) -> None:
        for name in ("m", "m" * 300 + "1", "m" * 300 + "2"):
            for raw in ("u_1/digest", "u_1/other"):
                sent = [self.send(site, raw, self.aimed(raw), name=name) for _ in range(2)]
                assert [each.status for each in sent] == [202, 200]

    def test_a_replay_after_the_window_is_unauthorized(self, site: Site) -> None:
        assert self.send(site, "u_1/digest", self.aimed("u_1/digest"), late_s=301).status == 401
        assert site.jobs() == []

    def test_another_time_in_the_body_breaks_the_signature(self, site: Site) -> None:
        body = self.aimed("u_1/digest", f', "nominalFireTime": "{AT}"')
        headers = sign(KEY, "m", site.clock.now_ms() // 1000, body)
        later = body.replace(b"09:00", b"10:00")
        assert site.dispatch("u_1/digest", later, headers).status == 401
        assert site.dispatch("u_1/digest", body, headers).status == 202

    def test_a_signed_body_cannot_be_aimed_at_another_schedule(self, site: Site) -> None:
        body = self.aimed("u_1/digest")
        assert self.send(site, "u_1/other", body).status == 400
        assert self.send(site, "u_1/other", b"{}").status == 401
        assert site.jobs() == []

    def test_the_signing_secret_is_no_bearer_token(self, site: Site) -> None:
        assert site.dispatch("u_1/digest", headers={"authorization": f"Bearer {KEY}"}).status == 401


class TestStrict:
    """Strict mode: accepts only an occurrence of the schedule that is close to now."""

    @pytest.fixture
    def site(self, serve: Serve) -> Site:
        found = serve(mail(), strict=True)  # 07:00
        create(found)  # 09:00 daily
        return found

    @pytest.mark.parametrize(
        ("body", "hint"),
        [
            (None, "missing"),
            ({}, "missing"),
            ({"nominalFireTime": "2026-05-04T09:00:01+00:00"}, "not an occurrence"),
            ({"nominalFireTime": "2026-05-04T10:00:00+00:00"}, "not an occurrence"),
            ({"nominalFireTime": AT}, "far from now"),
            ({"nominalFireTime": "2026-05-01T09:00:00+00:00"}, "far from now"),
        ],
    )
    def test_anything_else_is_refused(self, site: Site, body: Any, hint: str) -> None:
        reply = site.dispatch("u_1/digest", body)
        assert (reply.status, reply.error) == (400, "invalid_schedule")
        assert hint in reply.body["message"]
        assert site.jobs() == []

    def test_an_occurrence_near_its_time_is_taken_once(self, site: Site) -> None:
        site.clock.advance(hours=1, minutes=30)
        assert site.dispatch("u_1/digest", {"nominalFireTime": AT}).status == 202
        assert site.dispatch("u_1/digest", {"nominalFireTime": AT}).status == 200
        tomorrow = {"nominalFireTime": "2026-05-05T09:00:00+00:00"}
        assert site.dispatch("u_1/digest", tomorrow).status == 400


def test_an_unreachable_store_uses_up_no_key(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    site = serve(mail())
    create(site)
    with monkeypatch.context() as away:

        async def fire(request: object) -> None:
            raise BackendUnavailable("db.internal:5432 refused", is_unreachable=True)

        away.setattr(site.app.store, "fire", fire)
        reply = site.dispatch("u_1/digest", {"idempotencyKey": "k"})
        assert (reply.status, reply.error) == (503, "dispatch_failed")
        assert "db.internal" not in str(reply.body)
    assert site.dispatch("u_1/digest", {"idempotencyKey": "k"}).status == 202
