"""The OpenAPI document matches the routes, and the answers of a running server when fuzzed."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)
from starlette.requests import Request

from duly.app import Duly
from duly.dispatch import Gateway, HttpOptions, TickOptions
from duly.flows.flow import Flow
from duly.model.principals import Principal
from duly.model.scopes import user
from duly.testing import ManualClock
from duly.web.api.openapi import document
from duly.web.api.operations import OPERATIONS
from tests.integration.http.site import BEARER, NOW, SECRET, Site, served

KNOWN = {"flow": ["mail"], "scheduleId": ["digest"], "name": ["digest", "news"]}


def test_every_operation_is_documented_once() -> None:
    paths = document()["paths"]
    documented = {(path, method.upper()) for path in paths for method in paths[path]}
    assert documented == {(each.path.replace("+}", "}"), each.method) for each in OPERATIONS}
    ids = [each.id for each in OPERATIONS]
    assert len(ids) == len(set(ids))
    json.dumps(document())


def test_every_reference_resolves() -> None:
    text = json.dumps(document())
    names = document()["components"]["schemas"]
    used = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert used <= names.keys()


async def authenticate(request: Request) -> Principal | None:
    return Principal("u_1") if "authorization" in request.headers else None


@pytest.fixture(scope="module")
def fuzzed() -> Iterator[Site]:
    flow = Flow("mail")

    @flow.action
    async def send(what: dict[str, object] | None = None) -> None: ...

    options = HttpOptions(
        gateways=[Gateway(SECRET)],
        authenticate=authenticate,
        parse_id=lambda text: (user("u_1"), text),
    )
    clock = ManualClock(NOW)
    app = Duly("memory:", flows=[flow], clock=clock, http=options)
    with served(app.asgi) as port:
        site = Site(app, port, clock)
        site.set_http(tick=TickOptions(base_url=site.url))
        new = {"name": "digest", "trigger": "0 9 * * *", "action": "send"}
        assert site.ask("POST", "/api/flows/mail/my/schedules", new).status == 201
        assert site.ask("GET", "/api/openapi.json").body == document() | {"servers": [{"url": "/"}]}
        yield site


def document_with_known_names() -> dict[str, Any]:
    """Return the document with names of existing objects among the values of its parameters."""
    found: dict[str, Any] = json.loads(json.dumps(document()))
    for path in found["paths"].values():
        for operation in path.values():
            for parameter in operation["parameters"]:
                known = KNOWN.get(parameter["name"])
                if known is not None:
                    any_text = parameter["schema"] | {"maxLength": 40}
                    parameter["schema"] = {"anyOf": [{"enum": known}] * 3 + [any_text]}
    return found


schema = schemathesis.openapi.from_dict(document_with_known_names())


@schema.parametrize()
@settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_documented(case: Any, fuzzed: Site) -> None:
    case.call_and_validate(
        base_url=fuzzed.url,
        headers=BEARER,
        checks=[
            schemathesis.checks.not_a_server_error,
            status_code_conformance,
            content_type_conformance,
            response_schema_conformance,
            unsupported_method,
        ],
    )
