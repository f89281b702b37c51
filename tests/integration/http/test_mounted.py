"""The API inside other applications: mounted, below a root path, and beside their routes."""

from typing import Any

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from duly.app import Duly
from duly.dispatch import Gateway, HttpOptions
from duly.flows.collections import ScheduleCollection
from duly.flows.flow import Flow
from duly.model.scopes import dispatch_id, user
from duly.testing import ManualClock
from duly.web.api.asgi import Surface
from tests.integration.http.site import BEARER, NOW, SECRET, Site, served

OWNER, NAME = user("a/b|ü"), "100% c/d"


def app_with_a_schedule() -> Duly:
    flow = Flow("mail")

    @flow.action
    async def send() -> None: ...

    options = HttpOptions(gateways=[Gateway(SECRET)])
    return Duly("memory:", flows=[flow], clock=ManualClock(NOW), http=options)


def in_fastapi(app: Duly) -> Any:
    outer = FastAPI()

    @outer.get("/duly-not/hello")
    async def hello() -> str:
        return "hello"

    outer.mount("/duly", app.asgi)
    return outer


def in_starlette_twice(app: Duly) -> Any:
    return Starlette(routes=[Mount("/a b", Starlette(routes=[Mount("/c", app.asgi)]))])


@pytest.mark.parametrize(
    ("mount", "prefix"),
    [
        (lambda app: app.asgi, ""),
        (in_fastapi, "/duly"),
        (in_starlette_twice, "/a%20b/c"),
    ],
)
def test_ids_survive_every_mount(mount: Any, prefix: str) -> None:
    app = app_with_a_schedule()
    with served(mount(app)) as port:
        site = Site(app, port, ManualClock(NOW))
        mine = ScheduleCollection(app.store, "mail").of(OWNER)
        site.run(mine.create(NAME, "0 9 * * *", action="send"))
        path = f"{prefix}/api/flows/mail/schedules/{dispatch_id(OWNER, NAME)}/dispatch"
        assert site.ask("POST", path).status == 202
        assert site.ask("POST", path, headers={}).status == 401
        assert [job.scope for job in site.jobs()] == [str(OWNER)]
        found = site.ask("GET", f"{prefix}/api/openapi.json").body
        assert found["servers"] == [{"url": prefix.replace("%20", " ") or "/"}]


def test_routes_of_the_outer_application_still_answer() -> None:
    app = app_with_a_schedule()
    with served(in_fastapi(app)) as port:
        site = Site(app, port, ManualClock(NOW))
        assert site.ask("GET", "/duly-not/hello", headers={}).body == "hello"
        assert site.ask("GET", "/nothing", headers={}).status == 404
        assert site.ask("GET", "/duly/nothing", headers={}).status == 401


def test_other_paths_reach_another_application() -> None:
    app = app_with_a_schedule()

    async def other(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b'"the dashboard"'})

    with served(Surface(app, other=other)) as port:
        site = Site(app, port, ManualClock(NOW))
        assert site.ask("GET", "/jobs", headers={}).body == "the dashboard"
        assert site.ask("GET", "/api/tick", headers={}).status == 401
        assert site.ask("GET", "/api/flows/mail/schedules", headers=BEARER).status == 200
