"""Webhooks over real HTTP: verified, routed by a sparse index, run once and as the owner."""

import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from duly.dispatch import hmac_sha1, hmac_sha256, standard_webhooks
from duly.dispatch.auth.signing import sign
from duly.errors import InvalidInput
from duly.flows.collections import ResourceCollection
from duly.flows.flow import Flow
from duly.flows.webhook_routes import Routed, Verify, attribute_of, body_path, unsigned_header
from duly.model.scopes import Scope, user, workspace
from tests.integration.http.conftest import Serve
from tests.integration.http.site import Reply, Site

KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SECRET = "sender-secret"  # noqa: S105 - of a throwaway server
GUESSED = "guessed"


@dataclass
class Product:
    title: str
    project_id: str | None = None


@dataclass
class Deployed:
    product: str
    url: str


def deployed_of(routed: Routed) -> Deployed:
    return Deployed(routed.name, routed.body["url"])


SHA1 = hmac_sha1(header="x-vercel-signature", secret=SECRET)
BY_PROJECT = attribute_of("products", "project_id", value=lambda body: body["project"])


def posts(verify: Verify = SHA1, **options: Any) -> Flow:
    flow = Flow("posts")
    said: dict[str, Any] = {
        "route": BY_PROJECT,
        "delivery_id": unsigned_header("X-Delivery"),
        "input": deployed_of,
    } | options

    @flow.webhook("deployments", verify=verify, **said)
    async def announce(what: Deployed) -> None: ...

    return flow


def products(site: Site) -> ResourceCollection[Product]:
    return ResourceCollection(site.app.store, "products", Product, indexes=["project_id"])


def add(site: Site, scope: Scope, name: str, project: str | None) -> None:
    site.run(products(site).of(scope).upsert(name, Product(name, project)))


def deliver(
    site: Site,
    body: object,
    delivery: str | None = "d1",
    *,
    secret: str = SECRET,
    name: str = "deployments",
) -> Reply:
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    signature = hmac.new(secret.encode(), sent, "sha1").hexdigest()
    headers = {"x-vercel-signature": signature}
    if delivery is not None:
        headers["x-delivery"] = delivery
    return site.ask("POST", f"/api/flows/posts/webhooks/{name}", sent, headers)


EVENT = {"project": "prj_1", "url": "https://one.example"}


def test_one_endpoint_serves_all_owners(serve: Serve) -> None:
    site = serve(posts())
    add(site, user("ada"), "one", "prj_1")
    add(site, workspace("acme"), "two", "prj_2")
    first = deliver(site, EVENT)
    second = deliver(site, EVENT | {"project": "prj_2"}, "d2")
    # The order of ids made in the same millisecond is random.
    jobs = sorted(site.jobs(), key=lambda job: job.scope)
    assert (first.status, first.body) == (202, {"status": "accepted", "requestIds": [jobs[0].id]})
    assert second.status == 202
    assert [(job.action, job.scope, job.workspace, job.input) for job in jobs] == [
        (
            "posts.announce",
            "user:ada",
            "user:ada",
            '{"product":"one","url":"https://one.example"}',
        ),
        (
            "posts.announce",
            "workspace:acme",
            "acme",
            '{"product":"two","url":"https://one.example"}',
        ),
    ]


@pytest.mark.parametrize(
    "body",
    [
        {"project": "prj_9", "url": ""},
        {"project": None},
        {"other": "event"},
        [],
        "text",
        {"project": {"id": 1}},
        {"project": "x" * 600},
        {"project": 1},
    ],
)
def test_an_unknown_value_is_taken_and_ignored_without_a_scan(serve: Serve, body: object) -> None:
    site = serve(posts())
    add(site, user("ada"), "one", "prj_1")
    calls: list[str] = []
    for verb in ("list_documents", "count_documents", "find_documents", "insert_jobs"):
        _count(site, verb, calls)
    reply = deliver(site, body)
    assert (reply.status, reply.body) == (202, {"status": "ignored", "requestIds": []})
    assert calls in ([], ["find_documents"])


def _count(site: Site, verb: str, calls: list[str]) -> None:
    known = getattr(site.app.store, verb)

    async def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(verb)
        return await known(*args, **kwargs)

    setattr(site.app.store, verb, counted)


def test_a_disconnected_product_gets_nothing(serve: Serve) -> None:
    site = serve(posts())
    add(site, user("ada"), "one", "prj_1")
    add(site, user("ada"), "one", None)
    assert deliver(site, EVENT).body["status"] == "ignored"
    assert site.jobs() == []


def test_a_delivery_is_taken_once(serve: Serve) -> None:
    site = serve(posts())
    add(site, user("ada"), "one", "prj_1")
    first, again = deliver(site, EVENT), deliver(site, EVENT)
    assert (again.status, again.body) == (200, first.body | {"status": "duplicate"})
    changed = deliver(site, EVENT | {"url": "https://evil.example"})
    assert changed.body["status"] == "duplicate"
    assert deliver(site, EVENT, "d" * 1_000).status == 202
    assert deliver(site, EVENT, "d" * 1_000).status == 200
    assert len(site.jobs()) == 2


def test_a_captured_delivery_cannot_be_replayed_under_another_id(serve: Serve) -> None:
    by_digest, by_body = serve(posts(delivery_id=None)), serve(posts(delivery_id=body_path("id")))
    for site in (by_digest, by_body):
        add(site, user("ada"), "one", "prj_1")
        for delivery in ("d1", "d2", None):
            deliver(site, EVENT | {"id": "evt_1"}, delivery)
        assert len(site.jobs()) == 1
        assert deliver(site, EVENT | {"id": "evt_2"}, "d1").status == 202
        assert len(site.jobs()) == 2
    # The sender's own id identifies a repeated delivery even if the rest of the body differs.
    body = EVENT | {"id": "evt_1", "attempt": 2}
    assert deliver(by_body, body).body["status"] == "duplicate"
    assert deliver(by_digest, body).body["status"] == "accepted"


def test_an_unsigned_header_identifies_deliveries_only_if_declared(serve: Serve) -> None:
    site = serve(posts(delivery_id=unsigned_header("X-Delivery")))
    add(site, user("ada"), "one", "prj_1")
    statuses = [deliver(site, EVENT, delivery).status for delivery in ("d1", "d1", "d2")]
    assert statuses == [202, 200, 202]


def test_the_digest_covers_the_signed_headers_too(serve: Serve) -> None:
    """Two events with equal bodies differ in their signed time; a repeated one in nothing."""

    def verify(headers: Mapping[str, str], body: bytes, now_s: int) -> bool:
        signed = headers.get("x-time", "").encode() + b"." + body
        expected = hmac.new(SECRET.encode(), signed, "sha256").hexdigest()
        return hmac.compare_digest(headers.get("x-signature", ""), expected)

    verify.signed_headers = ("x-time",)  # type: ignore[attr-defined]
    site = serve(posts(verify, delivery_id=None))
    add(site, user("ada"), "one", "prj_1")
    body = json.dumps(EVENT).encode()
    path = "/api/flows/posts/webhooks/deployments"
    statuses = []
    for time in ("1", "1", "2"):
        signature = hmac.new(SECRET.encode(), time.encode() + b"." + body, "sha256").hexdigest()
        headers = {"x-time": time, "x-signature": signature}
        statuses.append(site.ask("POST", path, body, headers).status)
    assert statuses == [202, 200, 202]


VERCEL = {
    "id": "uok_8fNqZcVvT3mXwB1s",
    "type": "deployment.succeeded",
    "createdAt": 1_700_000_000_000,
    "region": None,
    "payload": {
        "team": {"id": "team_1"},
        "user": {"id": "usr_1"},
        "alias": [],
        "target": "production",
        "links": {"deployment": "https://vercel.com/t/sloth/1", "project": "https://vercel.com/t"},
        "deployment": {
            "id": "dpl_1",
            "name": "sloth",
            "url": "sloth-8fnqz.vercel.app",
            "meta": {"githubCommitRef": "main"},
        },
        "project": {"id": "prj_1"},
        "plan": "pro",
        "regions": ["fra1"],
    },
}


def vercel_of(routed: Routed) -> Deployed:
    return Deployed(routed.name, routed.body["payload"]["deployment"]["url"])


def test_a_vercel_deployment_as_vercel_sends_it(serve: Serve) -> None:
    route = attribute_of("products", "project_id", value=body_path("payload.project.id"))
    site = serve(posts(route=route, delivery_id=body_path("id"), input=vercel_of))
    add(site, user("ada"), "one", "prj_1")
    first, again = deliver(site, VERCEL, None), deliver(site, VERCEL, None)
    assert (first.status, again.status) == (202, 200)
    assert [json.loads(job.input) for job in site.jobs()] == [
        {"product": "one", "url": "sloth-8fnqz.vercel.app"}
    ]
    other = deliver(site, VERCEL | {"id": "uok_2", "payload": {"team": {"id": "team_1"}}}, None)
    assert (other.status, other.body["status"]) == (202, "ignored")


@pytest.mark.parametrize("odd", [None, "", True, 1.5, {}, ["x"]])
def test_a_body_without_its_declared_id_is_refused(serve: Serve, odd: object) -> None:
    site = serve(posts(delivery_id=body_path("meta.id")))
    add(site, user("ada"), "one", "prj_1")
    reply = deliver(site, EVENT | {"meta": {"id": odd}})
    assert (reply.status, reply.error) == (400, "invalid_body")
    assert "meta.id" in reply.body["message"]


@pytest.mark.parametrize("odd", ["\x00", "\n", "é", "d" * 2_000, 7])
def test_any_text_may_be_an_id(serve: Serve, odd: object) -> None:
    site = serve(posts(delivery_id=body_path("id")))
    add(site, user("ada"), "one", "prj_1")
    assert [deliver(site, EVENT | {"id": odd}).status for _ in range(2)] == [202, 200]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("a", {"b": [{"c": 1}, 2]}),
        ("a.b.0.c", 1),
        ("a.b.1", 2),
        *((path, None) for path in ("x", "a.x", "a.b.2", "a.b.-1", "a.b.x", "a.b.1.c", "a.b.²")),
    ],
)
def test_a_body_path_finds_its_value_or_none(path: str, found: object) -> None:
    assert body_path(path)({"a": {"b": [{"c": 1}, 2]}}) == found
    assert body_path(path)([]) is None


def test_two_products_of_one_project_are_ambiguous_or_both(serve: Serve) -> None:
    unique, fanned = serve(posts()), serve(posts(fan_out=True))
    for site in (unique, fanned):
        add(site, user("ada"), "one", "prj_1")
        add(site, user("ada"), "more", "prj_1")
        add(site, user("bob"), "two", "prj_1")
    refused = deliver(unique, EVENT)
    assert (refused.status, refused.error) == (409, "ambiguous")
    assert unique.jobs() == []
    assert deliver(fanned, EVENT).status == 202
    assert sorted((job.scope, json.loads(job.input)["product"]) for job in fanned.jobs()) == [
        ("user:ada", "more"),
        ("user:ada", "one"),
        ("user:bob", "two"),
    ]
    assert deliver(fanned, EVENT).status == 200


def test_a_wrong_signature_is_unauthorized_for_every_request(serve: Serve) -> None:
    site = serve(posts())
    add(site, user("ada"), "one", "prj_1")
    replies = [
        deliver(site, EVENT, secret=GUESSED),
        deliver(site, b"{", secret=GUESSED),
        deliver(site, EVENT, name="nothing"),
        site.ask("POST", "/api/flows/posts/webhooks/deployments", EVENT, {}),
        site.ask("POST", "/api/flows/nothing/webhooks/deployments", EVENT, {}),
    ]
    for reply in replies:
        assert (reply.status, reply.body) == (401, {"error": "unauthorized"})
    assert site.jobs() == []


def test_the_signature_is_over_the_raw_body(serve: Serve) -> None:
    site = serve(posts())
    body = b'{"url":"u", "project":  "prj_1"}'
    signature = hmac.new(SECRET.encode(), body, "sha1").hexdigest()
    headers = {"x-vercel-signature": signature, "x-delivery": "d"}
    path = "/api/flows/posts/webhooks/deployments"
    assert site.ask("POST", path, body, headers).status == 202
    assert site.ask("POST", path, body.replace(b"  ", b" "), headers).status == 401


def test_bad_deliveries_are_refused(serve: Serve) -> None:
    site = serve(posts())
    add(site, user("ada"), "one", "prj_1")
    assert deliver(site, b"{").error == "invalid_body"
    assert deliver(site, EVENT, None).error == "invalid_body"
    assert deliver(site, b" " * 1024 * 1024 + b"{}").status == 413
    broken = deliver(site, {"project": "prj_1"})
    assert (broken.status, broken.error) == (500, "dispatch_failed")
    assert site.ask("GET", "/api/flows/posts/webhooks/deployments").headers["allow"] == "POST"


def test_without_an_input_function_the_body_is_the_input(serve: Serve) -> None:
    flow = Flow("posts")

    @flow.webhook("deployments", verify=SHA1, route=BY_PROJECT)
    async def announce(what: dict[str, str]) -> None: ...

    site = serve(flow)
    add(site, user("ada"), "one", "prj_1")
    deliver(site, EVENT)
    assert json.loads(site.jobs()[0].input) == EVENT


def test_hmac_sha256_with_a_prefix_and_two_secrets() -> None:
    verify = hmac_sha256(header="X-Hub-Signature-256", secret=["old", "new"], prefix="sha256=")
    for secret, fits in (("old", True), ("new", True), ("other", False)):
        digest = hmac.new(secret.encode(), b"{}", "sha256").hexdigest()
        assert verify({"x-hub-signature-256": f"sha256={digest}"}, b"{}", 0) is fits
        assert verify({"x-hub-signature-256": digest}, b"{}", 0) is False
    assert verify({}, b"{}", 0) is False


@pytest.mark.parametrize("delivery_id", [None, "webhook-id"])
def test_standard_webhooks_within_its_window(serve: Serve, delivery_id: str | None) -> None:
    site = serve(posts(standard_webhooks(secret=KEY), delivery_id=delivery_id))
    add(site, user("ada"), "one", "prj_1")
    body = json.dumps(EVENT).encode()
    now_s = site.clock.now_ms() // 1000
    path = "/api/flows/posts/webhooks/deployments"
    assert site.ask("POST", path, body, sign(KEY, "m1", now_s - 301, body)).status == 401
    assert site.ask("POST", path, body, sign(KEY, "m1", now_s - 300, body)).status == 202
    assert site.ask("POST", path, body, sign(KEY, "m1", now_s, body)).body["status"] == "duplicate"


def test_declarations_that_cannot_work_are_refused() -> None:
    with pytest.raises(InvalidInput, match="empty"):
        hmac_sha256(header="x", secret="")
    with pytest.raises(InvalidInput, match="empty"):
        hmac_sha1(header="x", secret=[])
    with pytest.raises(InvalidInput, match="whsec_"):
        standard_webhooks(secret=GUESSED)
    with pytest.raises(InvalidInput, match="unsigned_header"):
        posts(delivery_id="x-delivery")
    with pytest.raises(InvalidInput, match="HTTP header"):
        unsigned_header("two words")
    for path in ("", "a..b", ".a", "a." * 40):
        with pytest.raises(InvalidInput, match="body path"):
            body_path(path)
    flow = posts()
    with pytest.raises(InvalidInput, match="already"):
        flow.webhook("deployments", verify=SHA1, route=BY_PROJECT)
