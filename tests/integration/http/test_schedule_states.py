"""Dispatches over HTTP are accepted for active schedules only, with any hand-over."""

from datetime import timedelta

import pytest

from duly.dispatch import ResolveContext
from duly.flows.collections.schedules import ScopedSchedules
from duly.flows.flow import Flow
from duly.flows.resolved import ScheduleConfig
from duly.model.schedules import HandOver
from duly.model.scopes import SYSTEM, user
from duly.triggers import cron, once
from tests.integration.http.conftest import Serve
from tests.integration.http.site import NOW, Site

AT = NOW + timedelta(hours=1)


def mail() -> Flow:
    flow = Flow("mail")

    @flow.action
    async def send() -> None: ...

    return flow


def mine(site: Site) -> ScopedSchedules:
    return site.app.schedules("mail").of(user("ada"))


@pytest.mark.parametrize("hand_over", ["jobs", "http", "external"])
def test_a_paused_schedule_is_not_found(serve: Serve, hand_over: HandOver) -> None:
    site = serve(mail())
    site.run(mine(site).create("n", "0 9 * * *", action="send", hand_over=hand_over))
    site.run(mine(site).pause("n", "on holiday"))
    for body in (None, {"nominalFireTime": AT.isoformat()}, {"idempotencyKey": "k"}):
        reply = site.dispatch("ada/n", body)
        assert (reply.status, reply.body) == (404, {"error": "schedule_not_found"})
    assert site.jobs() == []
    site.run(mine(site).resume("n"))
    assert site.dispatch("ada/n", {"idempotencyKey": "k"}).status == 202


def test_a_schedule_created_disabled_is_not_found(serve: Serve) -> None:
    site = serve(mail())
    made = mine(site).create("n", "0 9 * * *", action="send", hand_over="external", enabled=False)
    assert site.run(made).state == "paused"
    assert site.dispatch("ada/n").error == "schedule_not_found"
    assert site.jobs() == []


def test_an_external_single_time_is_dispatched_once(serve: Serve) -> None:
    site = serve(mail())
    site.run(mine(site).create("n", once(AT), action="send", hand_over="external"))
    site.clock.advance(hours=1)
    at = {"nominalFireTime": AT.isoformat()}
    assert site.dispatch("ada/n", at).status == 202
    assert site.dispatch("ada/n", at).body["status"] == "duplicate"
    assert site.dispatch("ada/n").error == "schedule_not_found"
    later = {"nominalFireTime": (AT + timedelta(hours=1)).isoformat()}
    assert site.dispatch("ada/n", later).error == "schedule_not_found"
    assert len(site.jobs()) == 1


def test_a_key_is_a_duplicate_also_when_its_dispatch_finished_the_schedule(serve: Serve) -> None:
    site = serve(mail())
    site.run(mine(site).create("n", once(AT), action="send", hand_over="external"))
    site.clock.advance(hours=1)
    assert site.dispatch("ada/n", {"idempotencyKey": "k"}).status == 202
    assert site.dispatch("ada/n", {"idempotencyKey": "k"}).body["status"] == "duplicate"
    assert site.dispatch("ada/n", {"idempotencyKey": "l"}).error == "schedule_not_found"


def test_a_finished_static_schedule_is_not_found(serve: Serve) -> None:
    flow = Flow("mail")

    @flow.schedule(cron("0 8 * * *", end_at=AT), overlap="allow")
    async def nightly() -> None: ...

    site = serve(flow)
    site.run(site.app.sync_static())
    site.clock.advance(hours=2)
    site.run(site.app.store.claim_due())
    found = site.run(site.app.schedules("mail").of(SYSTEM).get("nightly"))
    assert found is not None
    assert found.state == "finished"
    assert site.dispatch("nightly").error == "schedule_not_found"


@pytest.mark.parametrize("enabled", [True, False])
def test_a_resolver_cannot_run_a_stored_schedule_that_is_paused(
    serve: Serve, enabled: bool
) -> None:
    """A pause in the store outweighs the resolver's answer; a disabled answer is refused too."""
    flow = mail()

    @flow.resolve
    async def resolve(_: str, ctx: ResolveContext) -> ScheduleConfig:
        assert ctx.owner is not None
        return ScheduleConfig(action="send", principal=ctx.owner, enabled=enabled)

    site = serve(flow)
    site.run(mine(site).create("n", "0 9 * * *", action="send", hand_over="external"))
    site.run(mine(site).pause("n"))
    assert site.dispatch("ada/n").error == "schedule_not_found"
    assert site.dispatch("ada/elsewhere").status == (202 if enabled else 404)


def test_a_schedule_paused_while_it_is_authorised_is_not_found(serve: Serve) -> None:
    """The pause commits after the schedule was read and before its job is inserted."""
    sites: list[Site] = []

    async def authorize(*_: object) -> bool:
        await mine(sites[0]).pause("n")
        return True

    site = serve(mail(), authorize=authorize)
    sites.append(site)
    site.run(mine(site).create("n", "0 9 * * *", action="send", hand_over="external"))
    assert site.dispatch("ada/n").error == "schedule_not_found"
    assert site.jobs() == []


def test_state_and_hand_over_are_separate(serve: Serve) -> None:
    site = serve(mail())
    made = mine(site).create("n", "0 9 * * *", action="send", hand_over="external")
    assert (site.run(made).state, site.run(mine(site).pause("n")).state) == ("active", "paused")
    found = site.run(mine(site).get("n"))
    assert found is not None
    assert (found.state, found.definition.hand_over, found.definition.enabled) == (
        "paused",
        "external",
        False,
    )
