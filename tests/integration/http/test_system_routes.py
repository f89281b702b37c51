"""Routes that act on all owners are refused to a secret that belongs to one owner."""

import json

import pytest

from duly.dispatch import TickOptions
from duly.dispatch.auth.secrets import Gateway
from duly.dispatch.tick.aws_lambda import LambdaTick
from duly.flows.flow import Flow
from duly.model.principals import Principal
from duly.model.scopes import user
from tests.integration.http.conftest import Serve
from tests.integration.http.site import BEARER, SECRET, Site

OWN = "a-secret-of-one-user"
UNKNOWN = {"authorization": "Bearer wrong-wrong-wrong"}
ROUTES = [("POST", "/api/tick"), ("GET", "/api/tick"), ("GET", "/api/flows/mail/schedules")]


def mail() -> Flow:
    flow = Flow("mail")

    @flow.action
    async def send() -> None: ...

    return flow


def aimed(site: Site) -> Site:
    site.set_http(tick=TickOptions(base_url=site.url))
    return site


def site_with_due_schedule(serve: Serve) -> Site:
    gateways = [Gateway(SECRET), Gateway(OWN, Principal("u_1"))]
    site = aimed(serve(mail(), gateways=gateways))
    mine = site.app.schedules("mail").of(user("u_1"))
    site.run(mine.create("due", "0 8 * * *", action="send", hand_over="http"))
    site.clock.advance(hours=2)
    return site


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_a_users_secret_opens_no_system_route(serve: Serve, method: str, path: str) -> None:
    site = site_with_due_schedule(serve)
    reply = site.ask(method, path, headers={"authorization": f"Bearer {OWN}"})
    assert (reply.status, reply.error) == (403, "denied")
    assert "DULY_DISPATCH_SECRETS" in reply.body["message"]
    assert site.jobs() == []
    assert site.ask(method, path, headers=UNKNOWN).status == 401
    assert site.ask(method, path, headers=BEARER).status == 200


def test_a_users_secret_does_not_tick_by_lambda(serve: Serve) -> None:
    site = site_with_due_schedule(serve)
    handler = LambdaTick(site.app)
    answers = [
        handler({"headers": {"Authorization": f"Bearer {secret}"}}, None)
        for secret in (OWN, "wrong-wrong-wrong")
    ]
    assert [answer["statusCode"] for answer in answers] == [403, 401]
    assert json.loads(answers[0]["body"])["error"] == "denied"
    assert site.jobs() == []
    handler.close()


def test_a_principal_that_is_the_system_opens_them(serve: Serve) -> None:
    site = aimed(serve(mail(), gateways=[Gateway(SECRET, Principal())]))
    assert [site.ask(*route).status for route in ROUTES] == [204, 204, 200]
