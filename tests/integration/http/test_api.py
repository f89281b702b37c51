"""The API for end users: the full life of their own schedules, and no access to those of others."""

from dataclasses import dataclass
from typing import Any

import pytest
from starlette.requests import Request

from duly.flows.collections import ScheduleCollection
from duly.flows.flow import Flow
from duly.model.principals import Principal
from duly.model.schedules import Policies
from duly.model.scopes import user
from duly.triggers import weekly
from duly.web.api.operations import OPERATIONS
from tests.integration.http.conftest import Serve
from tests.integration.http.site import BEARER, Reply, Site

MY = "/api/flows/mail/my/schedules"
DIGEST = {"name": "digest", "trigger": "0 9 * * MON", "action": "send", "input": {"to": "ada"}}


@dataclass
class Digest:
    to: str
    lines: int = 10


def mail() -> Flow:
    flow = Flow("mail")

    @flow.action
    async def send(what: Digest) -> None: ...

    @flow.action
    async def purge() -> None: ...

    @flow.action(redact=["ssn"])
    async def file(what: dict[str, Any]) -> None: ...

    return flow


async def by_token(request: Request) -> Principal | None:
    token = request.headers.get("x-user", "")
    return Principal(token) if token else None


@pytest.fixture
def site(serve: Serve) -> Site:
    return serve(mail(), authenticate=by_token, user_actions=["mail.send", "mail.file"])


def ask(site: Site, method: str, path: str = "", body: object = None, who: str = "ada") -> Reply:
    return site.ask(method, MY + path, body, {"x-user": who})


def test_secrets_of_an_input_are_written_and_not_read(site: Site) -> None:
    given = {"to": "ada", "apiKey": "k-12345", "people": [{"ssn": "078-05"}], "pin": None}
    long = {"text": f"call 078-05 with k-12345 {'x' * 30_000}"}
    body = DIGEST | {"action": "file", "input": given | long, "description": "k-12345 is new"}
    shown = {"to": "ada", "apiKey": "[redacted]", "people": [{"ssn": "[redacted]"}], "pin": None}
    shown |= {"text": f"call [redacted] with [redacted] {'x' * 30_000}"}
    made = ask(site, "POST", body=body)
    assert (made.body["input"], made.body["description"]) == (shown, "[redacted] is new")
    assert ask(site, "GET", "/digest").body == made.body
    stored = ScheduleCollection(site.app.store, "mail").of(user("ada"))
    found = site.run(stored.get("digest"))
    assert found is not None
    assert found.definition.input == given | long
    for refused in (
        ask(site, "PATCH", "/digest", {"input": shown}),
        ask(site, "POST", body=body | {"name": "other", "input": shown}),
    ):
        assert (refused.status, refused.error) == (400, "invalid_schedule")
        assert "[redacted]" in refused.body["message"]
    kept = ask(site, "PATCH", "/digest", {"description": "another"})
    assert (kept.status, kept.body["input"]) == (200, shown)
    found = site.run(stored.get("digest"))
    assert found is not None
    assert found.definition.input == given | long


def test_the_whole_life_of_a_schedule(site: Site) -> None:
    made = ask(site, "POST", body=DIGEST)
    assert made.status == 201
    assert made.body == made.body | {
        "name": "digest",
        "flow": "mail",
        "action": "send",
        "input": {"to": "ada"},
        "words": "At 09:00 on Monday",
        "state": "active",
        "handOver": "jobs",
        "enabled": True,
        "nextAt": "2026-05-04T09:00:00Z",
        "version": 1,
        "dispatchId": "ada/digest",
    }
    assert ask(site, "GET", "/digest").body == made.body
    assert ask(site, "GET").body == {"schedules": [made.body], "next": None}
    tuesdays = weekly({"tue": "10:00"}, tz="Europe/Berlin").to_json()
    changed = ask(site, "PATCH", "/digest", {"trigger": tuesdays, "version": 1})
    assert (changed.status, changed.body["version"]) == (200, 2)
    assert changed.body["nextAt"] == "2026-05-05T08:00:00Z"
    paused = ask(site, "POST", "/digest/pause", {"note": "on holiday"})
    assert (paused.body["state"], paused.body["note"], paused.body["nextAt"]) == (
        "paused",
        "on holiday",
        None,
    )
    assert ask(site, "POST", "/digest/resume").body["state"] == "active"
    assert ask(site, "DELETE", "/digest").status == 204
    assert ask(site, "DELETE", "/digest").error == "schedule_not_found"
    assert ask(site, "GET").body["schedules"] == []


def test_previews_of_a_stored_rule_and_of_a_new_one(site: Site) -> None:
    ask(site, "POST", body=DIGEST)
    stored = ask(site, "GET", "/digest/preview?n=2")
    asked = site.ask(
        "POST",
        "/api/flows/mail/my/preview",
        {"trigger": "0 9 * * MON", "n": 2},
        {"x-user": "ada"},
    )
    assert stored.body == asked.body
    assert [each["at"] for each in asked.body["times"]] == [
        "2026-05-04T09:00:00Z",
        "2026-05-11T09:00:00Z",
    ]


def test_history_lists_outcomes_in_pages(site: Site) -> None:
    ask(site, "POST", body=DIGEST)
    assert ask(site, "GET", "/digest/history").body == {"occurrences": [], "next": None}
    for day in ("04", "11"):
        at = {"nominalFireTime": f"2026-05-{day}T09:00:00Z"}
        assert site.dispatch("ada/digest", at, BEARER).status in (200, 202)
    newest, oldest = ask(site, "GET", "/digest/history").body["occurrences"]
    assert (newest["nominalAt"], newest["state"]) == ("2026-05-11T09:00:00Z", "skipped")
    assert (oldest["state"], oldest["requestId"]) == ("fired", site.jobs()[0].id)
    page = ask(site, "GET", "/digest/history?limit=1").body
    assert [page["next"]] == [page["occurrences"][0]["nominalAt"]]
    rest = ask(site, "GET", f"/digest/history?before={page['next']}").body
    assert rest["occurrences"] == [oldest]


def test_schedules_of_other_users_are_not_found(site: Site) -> None:
    ask(site, "POST", body=DIGEST)
    calls = [
        ("GET", "/digest", None),
        ("PATCH", "/digest", {"note": "mine now"}),
        ("DELETE", "/digest", None),
        ("POST", "/digest/pause", None),
        ("POST", "/digest/resume", None),
        ("GET", "/digest/preview", None),
        ("GET", "/digest/history", None),
        ("GET", "/ada%2Fdigest", None),
        ("GET", "/..%2Fada%2Fdigest", None),
    ]
    for method, path, body in calls:
        assert ask(site, method, path, body, who="eve").error == "schedule_not_found"
    assert ask(site, "GET", who="eve").body["schedules"] == []
    assert ask(site, "POST", body=DIGEST, who="eve").status == 201
    assert ask(site, "DELETE", "/digest", who="eve").status == 204
    assert ask(site, "GET", "/digest").body["version"] == 1


def test_without_a_principal_or_without_authenticate_it_is_401(serve: Serve, site: Site) -> None:
    closed = serve(mail())
    for reply in (
        ask(site, "GET", who=""),
        ask(closed, "GET"),
        closed.ask("GET", MY, headers=BEARER),  # the dispatch secret does not identify a user
        ask(closed, "POST", body=DIGEST),
    ):
        assert (reply.status, reply.body) == (401, {"error": "unauthorized"})


def test_an_empty_principal_is_not_the_system(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    site = serve(mail(), authenticate=lambda _: Principal())
    known = {"flow": "mail", "name": "digest"}
    mine = [each for each in OPERATIONS if "/my/" in each.path]
    assert len(mine) == 10
    for each in mine:
        body = DIGEST if each.method == "POST" else None
        reply = site.ask(each.method, each.path.format(**known), body, {})
        assert (reply.status, reply.body) == (401, {"error": "unauthorized"}), each.id
    assert site.ask("GET", "/api/nothing", headers={}).status == 401
    assert site.run(site.app.store.list_schedules("mail", "system")) == []
    told = [getattr(each, "event", "") for each in caplog.records]
    assert told.count("http.authenticate_system") == 1


def test_unknown_flow_is_not_found_when_authenticated(site: Site) -> None:
    reply = site.ask("GET", "/api/flows/male/my/schedules", headers={"x-user": "ada"})
    assert (reply.status, reply.error) == (404, "flow_not_found")


@pytest.mark.parametrize(
    ("change", "error", "hint"),
    [
        ({"trigger": "not a cron"}, "invalid_schedule", "cron"),
        ({"trigger": "*/1 * * * * *"}, "invalid_schedule", ""),
        ({"trigger": {"kind": "cron"}}, "invalid_schedule", ""),
        ({"action": "nothing"}, "invalid_schedule", "nothing"),
        ({"action": "purge", "input": None}, "invalid_schedule", "purge"),
        ({"input": {"to": 5}}, "invalid_schedule", "to"),
        ({"input": {"to": "a", "tow": 1}}, "invalid_schedule", "tow"),
        ({"name": ""}, "invalid_body", "name"),
        ({"name": "k" * 129}, "invalid_body", "name"),
        ({"name": "a\x00b"}, "invalid_schedule", "control"),
        ({"handOver": "external"}, "invalid_body", "handOver"),
        ({"policies": {"priority": 1000}}, "invalid_body", "policies"),
        ({"maxRuns": 0}, "invalid_body", "maxRuns"),
        ({"enabled": "yes"}, "invalid_body", "enabled"),
        ({"description": "d" * 1_001}, "invalid_body", "description"),
    ],
)
def test_invalid_schedules_are_refused_with_the_reason(
    site: Site, change: dict[str, Any], error: str, hint: str
) -> None:
    reply = ask(site, "POST", body=DIGEST | change)
    assert (reply.status, reply.error) == (400, error)
    assert hint in reply.body["message"]
    assert ask(site, "GET").body["schedules"] == []


def test_bad_interval_and_large_inputs_are_refused(site: Site) -> None:
    reply = ask(site, "POST", body=DIGEST | {"trigger": {"v": 1, "kind": "every"}})
    assert reply.status == 400
    large = DIGEST | {"input": {"to": "x" * 600_000}}
    assert ask(site, "POST", body=large).status == 413
    larger_than_an_input = DIGEST | {"input": {"to": "x" * 300_000}}
    assert ask(site, "POST", body=larger_than_an_input).error == "invalid_schedule"


def test_conflicts_are_409(site: Site) -> None:
    assert ask(site, "POST", body=DIGEST).status == 201
    again = ask(site, "POST", body=DIGEST)
    assert (again.status, again.error) == (409, "conflict")
    assert ask(site, "PATCH", "/digest", {"note": "a", "version": 1}).status == 200
    stale = ask(site, "PATCH", "/digest", {"note": "b", "version": 1})
    assert (stale.status, stale.error) == (409, "conflict")


def test_a_change_is_validated_with_the_unchanged_fields(site: Site) -> None:
    ask(site, "POST", body=DIGEST)
    for change in ({"input": {"to": 5}}, {"action": "purge"}, {"input": None}):
        assert ask(site, "PATCH", "/digest", change).error == "invalid_schedule"
    assert ask(site, "PATCH", "/digest", {"maxRuns": 3}).body["maxRuns"] == 3
    assert ask(site, "PATCH", "/digest", {"maxRuns": None}).body["maxRuns"] is None


@pytest.mark.parametrize(
    "path",
    [
        "?limit=0",
        "?limit=1001",
        "?limit=x",
        "?limit=%C2%B2",
        "?limit=99999999999",
        "?after=%00",
        f"?after={'a' * 5_000}",
    ],
)
def test_a_bad_query_is_refused(site: Site, path: str) -> None:
    assert ask(site, "GET", path).error == "invalid_query"


def test_names_of_any_text(site: Site) -> None:
    name = "a/b %2F täglich|☕"
    assert ask(site, "POST", body=DIGEST | {"name": name}).status == 201
    path = "/a%2Fb%20%252F%20t%C3%A4glich%7C%E2%98%95"
    assert ask(site, "GET", path).body["name"] == name
    assert ask(site, "GET", "/%FF").error == "invalid_schedule_id"
    assert ask(site, "GET", f"?after={path[1:]}").body["schedules"] == []


def test_pages(site: Site) -> None:
    for name in ("a", "b", "c"):
        ask(site, "POST", body=DIGEST | {"name": name})
    first = ask(site, "GET", "?limit=2").body
    assert ([each["name"] for each in first["schedules"]], first["next"]) == (["a", "b"], "b")
    second = ask(site, "GET", "?limit=2&after=b").body
    assert ([each["name"] for each in second["schedules"]], second["next"]) == (["c"], None)


@pytest.mark.parametrize(
    ("path", "allowed"),
    [("", "GET, POST"), ("/digest", "GET, PATCH, DELETE"), ("/digest/pause", "POST")],
)
def test_other_methods_are_405_with_what_is_allowed(site: Site, path: str, allowed: str) -> None:
    reply = ask(site, "PUT", path)
    assert (reply.status, reply.headers["allow"]) == (405, allowed)


def test_an_authenticate_that_raises_refuses_the_request(serve: Serve) -> None:
    def broken(request: Request) -> Principal | None:
        raise RuntimeError("jwks unreachable at auth.internal")

    site = serve(mail(), authenticate=broken)
    reply = ask(site, "GET")
    assert (reply.status, reply.body) == (500, {"error": "failed"})
    assert site.ask("GET", "/api/nothing", headers={}).status == 401


def test_schedules_of_a_workspace_and_by_hand_over(serve: Serve) -> None:
    def authenticate(request: Request) -> Principal | None:
        return Principal(org_id="acme")

    site = serve(mail(), authenticate=authenticate, user_hand_over="http")
    assert ask(site, "POST", body=DIGEST).body["dispatchId"] == "workspace%3Aacme/digest"
    found = site.run(site.app.store.list_schedules("mail", "workspace:acme"))
    assert [each.definition.hand_over for each in found] == ["http"]


def test_a_schedule_of_the_application_is_seen_by_its_owner(site: Site) -> None:
    mine = ScheduleCollection(site.app.store, "mail").of(user("ada"))
    policies = Policies(overlap="allow")
    site.run(mine.create("k", "0 9 * * *", action="purge", policies=policies))
    assert ask(site, "GET", "/k").body["action"] == "purge"


def test_a_schedule_of_an_action_not_theirs_is_stopped_but_not_changed(site: Site) -> None:
    mine = ScheduleCollection(site.app.store, "mail").of(user("ada"))
    made = site.run(mine.create("k", "0 9 * * *", action="purge", max_runs=5))
    for change in (
        {"input": {"to": "eve"}},
        {"trigger": "0 * * * *", "note": "sooner"},
        {"maxRuns": None},
        {"action": "purge", "trigger": "0 * * * *"},
    ):
        refused = ask(site, "PATCH", "/k", change)
        assert (refused.status, refused.error) == (400, "invalid_schedule")
        assert "purge" in refused.body["message"]
    kept = site.run(mine.get("k"))
    assert kept is not None
    assert (kept.version, kept.definition) == (made.version, made.definition)
    assert ask(site, "PATCH", "/k", {"description": "clean up"}).status == 200
    assert ask(site, "POST", "/k/pause", {"note": "not now"}).body["state"] == "paused"
    assert ask(site, "POST", "/k/resume").body["state"] == "active"
    theirs = {"action": "send", "input": {"to": "ada"}, "trigger": "0 * * * *"}
    assert ask(site, "PATCH", "/k", theirs).body["action"] == "send"
    assert ask(site, "DELETE", "/k").status == 204


def test_without_an_allow_list_a_schedule_of_a_lost_action_can_be_changed(serve: Serve) -> None:
    site = serve(mail(), authenticate=by_token)
    mine = ScheduleCollection(site.app.store, "mail").of(user("ada"))
    site.run(mine.create("k", "0 9 * * *", action="renamed"))
    assert ask(site, "PATCH", "/k", {"trigger": "0 * * * *"}).status == 200


def test_a_trigger_without_a_zone_keeps_the_zone(site: Site) -> None:
    berlin = {"kind": "cron", "expression": "0 9 * * *", "tz": "Europe/Berlin"}
    assert ask(site, "POST", "", DIGEST | {"trigger": berlin}).status == 201
    changed = ask(site, "PATCH", "/digest", {"trigger": "30 8 * * *"})
    assert (changed.status, changed.body["trigger"]["tz"]) == (200, "Europe/Berlin")
    changed = ask(site, "PATCH", "/digest", {"trigger": {"kind": "once", "at": "2030-11-19T09:00"}})
    assert changed.body["nextAt"] == "2030-11-19T08:00:00Z"
    assert changed.body["words"] == "Once, on Tuesday 19 November 2030 at 09:00"


def test_a_once_in_the_past_is_refused(site: Site) -> None:
    past = {"kind": "once", "at": "2026-05-04T08:00", "tz": "Europe/Berlin"}  # an hour ago
    refused = ask(site, "POST", "", DIGEST | {"trigger": past})
    assert (refused.status, refused.error) == (400, "invalid_schedule")
    assert "in the past" in refused.body["message"]
    ask(site, "POST", "", DIGEST)
    assert ask(site, "PATCH", "/digest", {"trigger": past}).error == "invalid_schedule"
