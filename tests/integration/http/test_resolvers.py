"""Dispatch through a flow's own resolver: what it is given and which answers are accepted."""

from datetime import UTC, datetime
from typing import Any

import pytest

from duly.dispatch import Gateway, ResolveContext
from duly.dispatch.firing import InputContext
from duly.flows.collections import ScheduleCollection
from duly.flows.flow import Flow
from duly.flows.resolved import ScheduleConfig
from duly.model.principals import Principal
from duly.model.schedules import Policies
from duly.model.scopes import user
from duly.triggers import cron
from tests.integration.http.conftest import Serve
from tests.integration.http.site import Site

OWN = "a-secret-of-one-user-only"
AT = "2026-05-04T09:00:00Z"


class Calls:
    """A resolver that returns a given answer and records its calls."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[tuple[str, ResolveContext]] = []

    async def __call__(self, schedule_id: str, ctx: ResolveContext) -> ScheduleConfig | None:
        self.asked.append((schedule_id, ctx))
        answer = self.answer(ctx) if callable(self.answer) else self.answer
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]


def mail(answer: Any) -> tuple[Flow, Calls]:
    flow, calls = Flow("mail"), Calls(answer)

    @flow.action
    async def send(what: dict[str, object] | None = None) -> None: ...

    flow.resolve(calls)
    return flow, calls


def config(**said: Any) -> ScheduleConfig:
    usual: dict[str, Any] = {
        "action": "send",
        "principal": Principal(),
        "policies": Policies(overlap="allow"),
    }
    return ScheduleConfig(**(usual | said))


def served(serve: Serve, answer: Any, **http: Any) -> tuple[Site, Calls]:
    flow, calls = mail(answer)
    return serve(flow, **http), calls


def test_none_is_not_found(serve: Serve) -> None:
    site, _ = served(serve, None)
    assert site.dispatch("u_1/k").body == {"error": "schedule_not_found"}


@pytest.mark.parametrize("answer", [None, config(enabled=False), config(principal=Principal("u"))])
def test_missing_disabled_and_ownerless_are_refused(serve: Serve, answer: Any) -> None:
    site, _ = served(serve, answer)
    reply = site.dispatch("global-key")
    is_ownerless = answer is not None and answer.enabled
    assert reply.status == (400 if is_ownerless else 404)
    assert site.jobs() == []


def test_an_error_of_a_resolver_is_not_disclosed(serve: Serve) -> None:
    site, _ = served(serve, RuntimeError("password=hunter2"))
    reply = site.dispatch("u_1/k")
    assert (reply.status, reply.error) == (500, "resolver_failed")
    assert "hunter2" not in str(reply.body)


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (config(trigger="not a cron"), "cron"),
        (config(trigger={"kind": "yearly"}), "yearly"),
        (config(action="destroy"), "destroy"),
        (config(action=None), "None"),
        (lambda _: config(principal=Principal("")), "user id"),
        (lambda _: config(principal="u_1"), "principal"),
        (config(policies={}), "policies"),
        (lambda _: config(trigger=cron("61 * * * *")), "61"),
        (config(input=object()), "input"),
    ],
)
def test_a_bad_answer_never_reaches_the_action(serve: Serve, answer: Any, hint: str) -> None:
    site, _ = served(serve, answer)
    reply = site.dispatch("u_1/k")
    assert (reply.status, reply.error) == (400, "invalid_schedule")
    assert hint in reply.body["message"]
    assert site.jobs() == []


def test_an_answer_of_another_type_is_a_failure(serve: Serve) -> None:
    site, _ = served(serve, lambda _: "soon")
    assert site.dispatch("u_1/k").error == "resolver_failed"


def test_a_resolver_runs_only_after_authentication(serve: Serve) -> None:
    site, calls = served(serve, config())
    for headers in ({}, {"authorization": "Bearer wrong-secret-wrong"}):
        assert site.dispatch("u_1/k", headers=headers).status == 401
    assert calls.asked == []


def test_a_resolver_sees_who_asks_and_for_what(serve: Serve) -> None:
    gateways = [Gateway("a-secret-of-the-scheduler"), Gateway(OWN, Principal("u_1", "acme"))]
    site, calls = served(serve, config(), gateways=gateways)
    site.dispatch("u_1/k", {"nominalFireTime": AT})
    site.dispatch("u_1/k", headers={"authorization": f"Bearer {OWN}"})
    (_, scheduler), (_, one) = calls.asked
    assert scheduler.gateway_principal is None
    assert one.gateway_principal == Principal("u_1", "acme")
    assert scheduler.owner == Principal("u_1")
    assert scheduler.nominal_at == datetime(2026, 5, 4, 9, tzinfo=UTC)


def test_the_action_runs_as_the_principal_of_the_answer(serve: Serve) -> None:
    site, calls = served(serve, config())
    calls.answer = config(principal=Principal("u_1", "acme"))
    assert site.dispatch("u_1/k").status == 202
    calls.answer = config(principal=Principal())
    assert site.dispatch("u_1/k").status == 202
    assert sorted((job.scope, job.workspace) for job in site.jobs()) == [
        ("system", "system"),
        ("user:u_1", "acme"),
    ]


def test_another_owner_needs_the_resolvers_vouch(serve: Serve) -> None:
    site, calls = served(serve, config(principal=Principal("u_9")))
    refused = site.dispatch("order-17")
    assert (refused.status, refused.error) == (400, "invalid_schedule")
    assert "ctx.vouch" in refused.body["message"]
    calls.answer = lambda ctx: config(principal=ctx.vouch(Principal("u_9")))
    assert site.dispatch("order-17").status == 202
    assert [job.scope for job in site.jobs()] == ["user:u_9"]


def test_a_gateway_with_a_principal_reaches_only_its_schedules(serve: Serve) -> None:
    site, calls = served(serve, None, gateways=[Gateway(OWN, Principal("u_1"))])
    own = {"authorization": f"Bearer {OWN}"}
    calls.answer = lambda ctx: config(principal=ctx.vouch(Principal("u_2")))
    assert site.dispatch("u_2/k", headers=own).error == "schedule_not_found"
    assert site.dispatch("k", headers=own).error == "schedule_not_found"
    calls.answer = config(principal=Principal("u_1"))
    assert site.dispatch("u_1/k", headers=own).status == 202


def test_input_may_be_a_function_of_the_dispatch(serve: Serve) -> None:
    def made(ctx: InputContext) -> dict[str, object]:
        return {
            "for": ctx.principal.user_id,
            "at": ctx.nominal_at.isoformat(),
            "id": ctx.schedule_id,
        }

    site, calls = served(serve, config(principal=Principal("u_1"), input=made))
    assert site.dispatch("u_1/k", {"nominalFireTime": AT}).status == 202
    (job,) = site.jobs()
    assert job.input == '{"for":"u_1","at":"2026-05-04T09:00:00+00:00","id":"u_1/k"}'

    def broken(ctx: InputContext) -> object:
        raise LookupError("no draft")

    calls.answer = config(input=broken)
    reply = site.dispatch("u_1/k", {"idempotencyKey": "k1"})
    assert (reply.status, reply.error) == (500, "dispatch_failed")
    calls.answer = config()
    assert site.dispatch("u_1/k", {"idempotencyKey": "k1"}).status == 202  # no key was taken


def test_a_schedule_kept_elsewhere_is_dispatched_once_per_occurrence(serve: Serve) -> None:
    site, _ = served(serve, lambda ctx: config(principal=ctx.owner))
    ways = ("u_1/k%7C1", "u_1/k|1", "%75_1/k%7c1")
    statuses = [site.dispatch(raw, {"nominalFireTime": AT}).status for raw in ways]
    assert statuses == [202, 200, 200]
    assert site.dispatch("u_2/k%7C1", {"nominalFireTime": AT}).status == 202


def test_one_post_starts_one_action(serve: Serve) -> None:
    site, _ = served(serve, config())
    assert site.dispatch("u_1/k").status == 202
    assert len(site.jobs()) == 1


def test_a_resolver_may_fall_back_to_what_is_stored(serve: Serve) -> None:
    site, _ = served(serve, lambda ctx: ctx.stored)
    mine = ScheduleCollection(site.app.store, "mail").of(user("u_1"))
    made = site.run(mine.create("k", "0 9 * * *", action="send", input={"a": 1}))
    assert site.dispatch("u_1/k").status == 202
    assert site.dispatch("u_1/other").status == 404
    (job,) = site.jobs()
    assert (job.schedule_id, job.scope, job.input) == (made.id, "user:u_1", '{"a":1}')


def test_a_plain_function_is_a_resolver_too(serve: Serve) -> None:
    flow, _ = mail(None)

    def resolve(schedule_id: str, ctx: ResolveContext) -> ScheduleConfig | None:
        return config() if schedule_id == "known" else None

    flow.resolver = resolve
    site = serve(flow)
    assert [site.dispatch(each).status for each in ("known", "unknown")] == [202, 404]
