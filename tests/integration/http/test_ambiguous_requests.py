"""Requests that a proxy and this server could parse differently, sent as raw bytes."""

import asyncio
import hmac
import importlib.util
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from duly import Duly, Flow, Gateway, HttpOptions, attribute_of, hmac_sha256, user
from duly.dispatch.contract import Refusal
from duly.flows.collections import ResourceCollection
from duly.flows.webhook_routes import unsigned_header
from duly.model.stored_jobs import JobFilter
from duly.web.api.asgi import Surface
from duly.web.dashboard.gate import COOKIE
from duly.web.dashboard.site import dashboard_app
from duly.web.operators.accounts import Operator
from duly.web.operators.auth import AuthOptions, OperatorAuth
from duly.web.serving.ambiguity import ONCE, UniqueHeaders, ambiguity_of
from tests.integration.http.site import SECRET, served

SENDER = "secret-of-the-sender"
DISPATCH = "/api/flows/mail/schedules/nightly/dispatch"
WEBHOOK = "/api/flows/mail/webhooks/changed"
ADA = Operator("ada", "operator")
PARSERS = [
    "h11",
    pytest.param(
        "httptools",
        marks=pytest.mark.skipif(
            importlib.util.find_spec("httptools") is None, reason="httptools is not installed"
        ),
    ),
]


@dataclass
class Thing:
    code: str | None = None


def mail() -> Flow:
    flow = Flow("mail")

    @flow.schedule("0 2 * * *", hand_over="external")
    async def nightly() -> None: ...

    @flow.webhook(
        "changed",
        verify=hmac_sha256(header="x-signature", secret=SENDER),
        route=attribute_of("things", "code", value=lambda body: body["code"]),
        delivery_id=unsigned_header("x-delivery"),
    )
    async def changed(body: dict[str, str]) -> None: ...

    return flow


class Site:
    """API and dashboard, served with one of uvicorn's HTTP parsers."""

    def __init__(self, app: Duly, auth: OperatorAuth, port: int) -> None:
        self.app, self.auth, self.port = app, auth, port

    def send(self, *parts: str) -> tuple[list[int], bytes]:
        """Send raw bytes, read until the server closes; return the statuses and all bytes read."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
            connection.sendall("".join(parts).encode("latin-1"))
            read = b""
            while part := connection.recv(65_536):
                read += part
        lines = [line for line in read.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]
        return [int(line.split()[1]) for line in lines], read

    def jobs(self) -> int:
        return len(asyncio.run(self.app.store.list_jobs(JobFilter(), limit=100)))


@pytest.fixture(params=PARSERS)
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    app = Duly("memory:", flows=[mail()], http=HttpOptions(gateways=[Gateway(SECRET)]))
    auth = OperatorAuth(AuthOptions((ADA,)))
    things = ResourceCollection(app.store, "things", Thing, indexes=["code"])
    asyncio.run(things.of(user("ada")).upsert("one", Thing("c1")))
    surface = Surface(app, other=dashboard_app(app, auth))
    with served(surface, http=request.param) as port:
        yield Site(app, auth, port)


def a_request(
    method: str, path: str, headers: list[str], body: str = "", connection: str = "close"
) -> str:
    whole = [f"{method} {path} HTTP/1.1", *headers, f"Connection: {connection}", "", body]
    return "\r\n".join(whole)


HOST = "Host: localhost"
TOKEN = f"Authorization: Bearer {SECRET}"
LENGTH = "Content-Length: 0"


def test_a_plain_request_is_answered(site: Site) -> None:
    assert site.send(a_request("POST", DISPATCH, [HOST, TOKEN, LENGTH]))[0] == [202]
    assert site.jobs() == 1


def test_length_and_encoding_together_are_refused_and_the_connection_ends(site: Site) -> None:
    inner = a_request("POST", DISPATCH, [HOST, TOKEN, LENGTH])
    for framing in (
        ["Content-Length: 5", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked", "Content-Length: 5"],
        ["Content-Length: 5", "transfer-encoding: Chunked"],
    ):
        sent = [HOST, TOKEN, *framing]
        outer = a_request("POST", DISPATCH, sent, "0\r\n\r\n", connection="keep-alive")
        statuses, read = site.send(outer, inner)
        assert statuses == [400]
        assert b"connection: close" in read.lower()
    assert site.jobs() == 0


@pytest.mark.parametrize(
    "framing",
    [
        ["Content-Length: 0", "Content-Length: 5"],
        ["Content-Length: 0, 5"],
        ["Content-Length: +0"],
        ["Content-Length: -1"],
        ["Transfer-Encoding: chunked", "Transfer-Encoding: identity"],
        ["Transfer-Encoding: xchunked"],
        ["Transfer-Encoding: identity"],
        ["Content-Length : 0"],
        [" Content-Length: 0"],
    ],
)
def test_other_odd_framing_is_refused(site: Site, framing: list[str]) -> None:
    statuses, _ = site.send(a_request("POST", DISPATCH, [HOST, TOKEN, *framing], "0\r\n\r\n"))
    assert len(statuses) == 1
    assert 400 <= statuses[0] < 500
    assert site.jobs() == 0


@pytest.mark.parametrize(
    "repeated",
    [
        ["Host: localhost", "Host: elsewhere"],
        [TOKEN, "Authorization: Bearer wrong-wrong-wrong"],
        ["Authorization: Bearer wrong-wrong-wrong", TOKEN],
        [TOKEN, TOKEN],
        ["X-Forwarded-Proto: https", "X-Forwarded-Proto: http"],
        ["Content-Type: application/json", "Content-Type: text/plain"],
    ],
)
def test_repeated_headers_that_matter_are_refused(site: Site, repeated: list[str]) -> None:
    named = {each.partition(":")[0] for each in repeated}
    others = [each for each in (HOST, TOKEN) if each.partition(":")[0] not in named]
    statuses, _ = site.send(a_request("POST", DISPATCH, [*others, *repeated, LENGTH]))
    assert statuses == [400]
    assert site.jobs() == 0


@pytest.mark.parametrize("name", ["X-Signature", "X-Delivery"])
@pytest.mark.parametrize("is_first", [True, False])
def test_repeated_headers_that_a_webhook_reads_are_refused(
    site: Site, name: str, is_first: bool
) -> None:
    body = json.dumps({"code": "c1"})
    signature = hmac.new(SENDER.encode(), body.encode(), "sha256").hexdigest()
    headers = [HOST, f"X-Signature: {signature}", "X-Delivery: d1", f"Content-Length: {len(body)}"]
    other = [f"{name}: other"]
    sent = [*other, *headers] if is_first else [*headers, *other]
    statuses, read = site.send(a_request("POST", WEBHOOK, sent, body))
    assert statuses == [400]
    assert b"ambiguous_request" in read
    assert site.jobs() == 0
    # Headers that do not affect any decision may be repeated.
    accepts = ["Accept: a/b", "Accept: c/d", "X-Other: 1", "X-Other: 2"]
    assert site.send(a_request("POST", WEBHOOK, [*accepts, *headers], body))[0] == [202]


@pytest.mark.parametrize(
    "repeated",
    [
        ["Host: localhost", "Host: elsewhere"],
        ["Origin: http://elsewhere", "Origin: http://localhost"],
        ["Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-origin"],
    ],
)
def test_dashboard_refuses_repeated_headers(site: Site, repeated: list[str]) -> None:
    cookie = f"Cookie: {COOKIE}={site.auth.begin(ADA)}"
    others = [] if repeated[0].startswith("Host") else [HOST]
    sent = a_request("POST", "/sign-out", [*others, cookie, *repeated, LENGTH])
    assert site.send(sent)[0] == [400]


@pytest.mark.parametrize("name", sorted(ONCE))
def test_every_unique_header_is_ambiguous_when_repeated(name: str) -> None:
    once: list[Any] = [(name.encode(), b"1")]
    assert ambiguity_of(once) is None
    assert name in str(ambiguity_of([*once, (name.title().encode(), b"1")]))


def test_repeated_headers_are_refused_only_when_read() -> None:
    headers = UniqueHeaders([(b"X-A", b"1"), (b"x-a", b"2"), (b"Via", b"p"), (b"via", b"q")])
    assert headers.get("x-b", "none") == "none"
    assert headers["via"] == "p, q"
    assert list(headers) == ["x-a", "via"]
    with pytest.raises(Refusal) as refused:
        headers.get("x-a")
    assert refused.value.answer.status == 400
