"""Static schedules: dispatched without a row, listed, and paused by their stored definition."""

import pytest

from duly.dispatch import Gateway, ResolveContext
from duly.dispatch.options import ParseId
from duly.flows.flow import Flow
from duly.flows.resolved import ScheduleConfig
from duly.model.principals import Principal
from duly.model.scopes import SYSTEM, user
from duly.triggers import cron
from tests.integration.http.conftest import Serve
from tests.integration.http.site import Site

AT = {"nominalFireTime": "2026-05-05T02:00:00Z"}
OWN = "a-secret-of-one-user-only"


def ops() -> Flow:
    flow = Flow("ops")

    @flow.schedule(cron("0 2 * * *", tz="Europe/Berlin"), overlap="allow")
    async def nightly() -> None: ...

    @flow.action
    async def other() -> None: ...

    return flow


def test_a_static_schedule_needs_no_row(serve: Serve) -> None:
    site = serve(ops())
    reply = site.dispatch("system/nightly", AT, flow="ops")
    assert (reply.status, reply.body["origin"]) == (202, "static")
    by_name = site.dispatch("nightly", AT, flow="ops")
    assert (by_name.status, by_name.body["status"]) == (200, "duplicate")
    assert [(job.action, job.scope) for job in site.jobs()] == [("ops.nightly", "system")]
    assert site.dispatch("u_1/nightly", flow="ops").status == 404
    assert site.dispatch("other", flow="ops").status == 404


def test_static_wins_over_the_resolver(serve: Serve) -> None:
    flow, asked = ops(), []

    @flow.resolve
    def resolve(schedule_id: str, ctx: object) -> None:
        asked.append(schedule_id)

    site = serve(flow)
    assert site.dispatch("nightly", flow="ops").status == 202
    assert site.dispatch("weekly", flow="ops").status == 404
    assert asked == ["weekly"]


@pytest.mark.parametrize("parse_id", [None, lambda _: None, lambda text: (user("u_1"), text)])
def test_a_paused_static_schedule_is_not_dispatched(serve: Serve, parse_id: ParseId | None) -> None:
    site = serve(ops(), parse_id=parse_id)
    site.run(site.app.sync_static())
    stored = site.app.schedules("ops").of(SYSTEM)
    assert site.dispatch("nightly", flow="ops").status == 202
    site.run(stored.pause("nightly"))
    for raw in ("nightly", "system/nightly"):
        assert site.dispatch(raw, flow="ops").error == "schedule_not_found"
    assert _listed(site)["enabled"] is False


def test_the_list_has_only_static_schedules(serve: Serve) -> None:
    site = serve(ops())
    site.run(site.app.schedules("ops").of(user("ada")).create("mine", "0 9 * * *", action="other"))
    found = site.ask("GET", "/api/flows/ops/schedules").body
    assert found["dynamic"] == {"provided": True}
    assert found["static"] == [
        {
            "id": "system/nightly",
            "action": "nightly",
            "cron": "0 2 * * *",
            "trigger": cron("0 2 * * *", tz="Europe/Berlin").to_json(),
            "timezone": "Europe/Berlin",
            "description": "",
            "enabled": True,
        }
    ]
    assert "ada" not in str(found)
    assert site.ask("GET", "/api/flows/nothing/schedules").error == "flow_not_found"


def test_a_users_gateway_does_not_reach_system_schedules(serve: Serve) -> None:
    site = serve(ops(), gateways=[Gateway(OWN, Principal("u_1"))])
    own = {"authorization": f"Bearer {OWN}"}
    for raw in ("nightly", "system/nightly"):
        assert site.dispatch(raw, headers=own, flow="ops").error == "schedule_not_found"
    assert site.jobs() == []


def _listed(site: Site) -> dict[str, object]:
    (found,) = site.ask("GET", "/api/flows/ops/schedules").body["static"]
    return dict(found)


def test_static_and_external_schedules_and_a_resolver_need_no_index_row(serve: Serve) -> None:
    flow = ops()

    @flow.resolve
    async def resolve(schedule_id: str, ctx: ResolveContext) -> ScheduleConfig | None:
        known = ctx.stored or ScheduleConfig(action="other", principal=Principal())
        return known if schedule_id in ("kept-elsewhere", "ada/outside") else None

    site = serve(flow)
    outside = site.app.schedules("ops").of(user("ada"))
    site.run(outside.create("outside", "0 9 * * *", action="other", hand_over="external"))
    for raw in ("nightly", "kept-elsewhere", "ada/outside"):
        assert site.dispatch(raw, flow="ops").status == 202
    assert site.run(site.app.store.list_rows()) == []
    assert sorted(job.scope for job in site.jobs()) == ["system", "system", "user:ada"]
