"""Tests of the dashboard over HTTP: sign-in, forms, and response headers."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Iterator
from typing import Any, Self

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp

from duly import Context, Duly, Flow, JobId, ScheduleCollection, cron, user
from duly.errors import InvalidInput
from duly.model.claims import ClaimRequest
from duly.model.jobs import JobState, WorkerId
from duly.model.stored_jobs import JobFilter
from duly.model.summaries import AuditEntry
from duly.rules.outcomes import Failed, decide
from duly.web.dashboard.gate import COOKIE, MAX_FORM
from duly.web.dashboard.headers import POLICY
from duly.web.dashboard.site import ACTIONS, PAGES, dashboard_app
from duly.web.operators.accounts import Operator, hash_password
from duly.web.operators.auth import AuthOptions, OperatorAuth

PASSWORD = "correct horse"  # noqa: S105
HASH = hash_password(PASSWORD)
OPERATORS = (Operator("ada", "operator", HASH), Operator("vic", "viewer", HASH))
FORM = "application/x-www-form-urlencoded"


def an_app() -> Duly:
    flow = Flow("crm")

    @flow.action
    async def send(input: dict[str, str], ctx: Context) -> None:  # noqa: A002
        """Nothing."""

    return Duly("memory:", flows=[flow])


async def a_dead_job(app: Duly, *, queue: str = "default", error: str = "no") -> JobId:
    given = {"password": "hunter22"}
    job_id = (await app.client.enqueue("crm.send", given, queue=queue)).job_id
    claims = await app.store.claim_jobs(ClaimRequest(worker=WorkerId("w"), queues=(queue,)))
    await app.store.finish([decide(job, Failed(error, is_final=True)) for job in claims.jobs])
    return job_id


class Http:
    """Sends requests one after another on one event loop."""

    def __init__(self, app: ASGIApp, scheme: str = "http") -> None:
        self.app = app
        self.cookies = httpx.Cookies()
        self._runner = asyncio.Runner()
        self._url = f"{scheme}://127.0.0.1"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.close()

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self._runner.run(self._ask("GET", path, options))

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self._runner.run(self._ask("POST", path, options))

    async def _ask(self, method: str, path: str, options: dict[str, Any]) -> httpx.Response:
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(
            transport=transport, base_url=self._url, cookies=self.cookies
        ) as client:
            answer = await client.request(method, path, **options)
            self.cookies = client.cookies
            return answer


class Visitor:
    """An HTTP client that behaves like a browser, with cookies and form tokens."""

    def __init__(self, app: Duly, auth: OperatorAuth, mount: str = "") -> None:
        self.app, self.auth = app, auth
        dashboard = dashboard_app(app, auth)
        whole = Starlette(routes=[Mount(mount, dashboard)]) if mount else dashboard
        self.http = Http(whole)

    def become(self, number: int) -> None:
        self.http.cookies.set(COOKIE, self.auth.begin(self.auth.options.operators[number]))

    def token(self, path: str = "/queue?name=default") -> str:
        found = re.search(r'name="csrf" value="([0-9a-f]+)"', self.http.get(path).text)
        assert found is not None
        return found[1]

    def audit(self) -> list[AuditEntry]:
        return asyncio.run(self.app.admin.monitoring.audit())


@pytest.fixture
def visitor() -> Iterator[Visitor]:
    visitor = Visitor(an_app(), OperatorAuth(AuthOptions(OPERATORS)))
    with visitor.http:
        yield visitor


@pytest.mark.parametrize("path", [*PAGES, "/nowhere", "/live"])
def test_pages_need_sign_in(visitor: Visitor, path: str) -> None:
    answer = visitor.http.get(path)
    assert answer.status_code == (401 if path == "/live" else 303)
    assert "Overview" not in answer.text


@pytest.mark.parametrize("path", [*ACTIONS, "/theme"])
def test_changes_need_sign_in(visitor: Visitor, path: str) -> None:
    answer = visitor.http.post(path, data={"id": "a"})
    assert answer.status_code == (303 if path == "/theme" else 403)
    assert visitor.audit() == []


@pytest.mark.parametrize("path", PAGES)
def test_every_page_answers(visitor: Visitor, path: str) -> None:
    visitor.become(0)
    answer = visitor.http.get(path)
    needs_more = {"/job", "/jobs/confirm", "/schedule", "/schedules/edit", "/queue"}
    assert answer.status_code == (400 if path in needs_more else 200)
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert not re.search(r"<script(?! type=\"module\" src=)|style=|onclick=|https?://", answer.text)


def test_content_policy_allows_no_other_origin() -> None:
    assert "unsafe" not in POLICY
    assert "script-src 'self';" in POLICY
    assert "frame-ancestors 'none'" in POLICY
    assert "http" not in POLICY


def test_sign_in_and_out(visitor: Visitor) -> None:
    http = visitor.http
    fields = {"name": "ada", "password": PASSWORD, "next": "/jobs?state=dead"}
    answer = http.post("/sign-in", data=fields)
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs?state=dead")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert "Secure" not in cookie
    assert http.get("/").status_code == 200
    assert http.post("/sign-out", data={}).status_code == 303
    assert http.get("/").status_code == 303
    assert [(each.by, each.action, each.outcome) for each in visitor.audit()] == [
        ("ada", "sign_out", "done"),
        ("ada", "sign_in", "done"),
    ]


def test_cookies_are_secure_over_https(visitor: Visitor) -> None:
    with Http(visitor.http.app, "https") as http:
        answer = http.post("/sign-in", data={"name": "ada", "password": PASSWORD})
    assert "Secure" in answer.headers["set-cookie"]


def test_wrong_passwords_are_counted_and_names_not_kept(visitor: Visitor) -> None:
    for _ in range(5):
        answer = visitor.http.post("/sign-in", data={"name": "my-password", "password": "x"})
        assert answer.status_code == 401
    answer = visitor.http.post("/sign-in", data={"name": "ada", "password": PASSWORD})
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) > 0
    assert {each.by for each in visitor.audit()} == {"(unknown)"}


def test_wrong_passwords_at_the_same_time_are_counted_too(visitor: Visitor) -> None:
    async def guess() -> list[int]:
        transport = httpx.ASGITransport(visitor.http.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            guesses = [{"name": "ada", "password": f"guess-{n}"} for n in range(40)]
            answers = await asyncio.gather(*(http.post("/sign-in", data=each) for each in guesses))
            return [answer.status_code for answer in answers]

    codes = asyncio.run(guess())
    assert set(codes) == {401, 429}
    assert codes.count(401) <= 5 + 2


@pytest.mark.parametrize(
    "headers", [{"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}]
)
def test_sign_in_from_elsewhere_is_refused(visitor: Visitor, headers: dict[str, str]) -> None:
    fields = {"name": "ada", "password": PASSWORD}
    answer = visitor.http.post("/sign-in", data=fields, headers=headers)
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


def test_link_is_used_by_a_button_and_once(visitor: Visitor) -> None:
    token = visitor.auth.make_link_token(Operator("demo", "operator"))
    assert token in visitor.http.get("/sign-in/link", params={"token": token}).text
    answer = visitor.http.post("/sign-in/link", data={"token": token})
    assert answer.status_code == 303
    assert "demo" in visitor.http.get("/").text
    visitor.http.cookies.clear()
    assert visitor.http.post("/sign-in/link", data={"token": token}).status_code == 401


def test_an_operation_is_done_and_audited(visitor: Visitor) -> None:
    job_id = asyncio.run(a_dead_job(visitor.app))
    visitor.become(0)
    fields = {"csrf": visitor.token(), "id": job_id, "back": f"/job?id={job_id}"}
    answer = visitor.http.post("/job/retry", data=fields)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/job?id={job_id}")
    page = visitor.http.get(f"/job?id={job_id}").text
    assert "is queued." in page
    assert "hunter22" not in page
    assert "is queued." not in visitor.http.get("/jobs").text
    (entry,) = visitor.audit()
    assert (entry.by, entry.action, entry.target) == ("ada", "job.retry", f"job:{job_id}")


def test_bulk_actions_are_confirmed_with_a_count_and_audited_with_their_filter(
    visitor: Visitor,
) -> None:
    for queue in ("default", "default", "mail"):
        asyncio.run(a_dead_job(visitor.app, queue=queue))
    visitor.become(0)
    listed = html.unescape(visitor.http.get("/jobs?state=dead&queue=default").text)
    confirm = "/jobs/confirm?do=retry&state=dead&queue=default"
    assert confirm in listed
    assert "<strong>2 jobs</strong>" in visitor.http.get(confirm).text
    assert "<strong>3 jobs</strong>" in visitor.http.get("/jobs/confirm?do=delete&state=dead").text
    assert visitor.http.get("/jobs/confirm?do=burn&state=dead").status_code == 400
    assert visitor.http.get("/jobs/confirm?do=delete").status_code == 400

    fields = {"csrf": visitor.token(), "state": "dead", "queue": "default", "other": "x"}
    answer = visitor.http.post("/jobs/retry", data=fields)
    assert answer.headers["location"] == "/jobs?state=dead&queue=default"
    entry = visitor.audit()[0]
    assert (entry.action, entry.target) == ("jobs.retry", "jobs:state=dead&queue=default")
    assert entry.detail.startswith("2 jobs are queued again")
    left = asyncio.run(visitor.app.admin.count_many(JobFilter(state=JobState.DEAD)))
    assert (left.jobs, left.is_exact) == (1, True)


def test_a_capped_count_is_shown_as_such(visitor: Visitor) -> None:
    for _ in range(3):
        asyncio.run(a_dead_job(visitor.app))
    count = asyncio.run(visitor.app.admin.count_many(JobFilter(state=JobState.DEAD), limit=2))
    assert (count.jobs, count.is_exact) == (2, False)
    with pytest.raises(InvalidInput, match="every job"):
        asyncio.run(visitor.app.admin.count_many(JobFilter()))


def test_an_error_of_several_lines_shows_its_first_and_the_whole_on_hover(
    visitor: Visitor,
) -> None:
    error = "ValueError: card was declined\n  code: 51\nsee https://bank.example"
    job_id = asyncio.run(a_dead_job(visitor.app, error=error))
    visitor.become(0)
    for path in ("/", "/jobs?state=dead", f"/job?id={job_id}"):
        page = html.unescape(visitor.http.get(path).text)
        assert ">ValueError: card was declined …</span>" in page, path
        assert f'title="{error}"' in page, path


def test_a_refused_operation_is_audited_too(visitor: Visitor) -> None:
    visitor.become(0)
    answer = visitor.http.post("/job/retry", data={"csrf": visitor.token(), "id": "job_nobody"})
    assert answer.status_code == 303
    assert "does not exist" in visitor.http.get("/").text
    (entry,) = visitor.audit()
    assert (entry.outcome, entry.target) == ("refused", "job:job_nobody")


@pytest.mark.parametrize("token", [None, "", "0" * 64])
def test_forms_without_their_token_are_refused(visitor: Visitor, token: str | None) -> None:
    job_id = asyncio.run(a_dead_job(visitor.app))
    visitor.become(0)
    fields = {"id": job_id} | ({} if token is None else {"csrf": token})
    assert visitor.http.post("/job/retry", data=fields).status_code == 403
    job = asyncio.run(visitor.app.client.job(job_id))
    assert job is not None
    assert job.state is JobState.DEAD


def test_forms_from_other_sites_are_refused(visitor: Visitor) -> None:
    visitor.become(0)
    fields = {"csrf": visitor.token(), "name": "default"}
    answer = visitor.http.post(
        "/queue/pause", data=fields, headers={"origin": "https://evil.example"}
    )
    assert answer.status_code == 403


@pytest.mark.parametrize("path", ACTIONS)
def test_viewers_are_refused(visitor: Visitor, path: str) -> None:
    visitor.become(1)
    fields = {"csrf": visitor.token(), "id": "a", "name": "default", "flow": "f", "scope": "system"}
    assert visitor.http.post(path, data=fields).status_code == 303
    (entry,) = visitor.audit()
    assert (entry.by, entry.outcome) == ("vic", "refused")
    assert asyncio.run(visitor.app.admin.queues()) == []


def test_forms_have_bounds(visitor: Visitor) -> None:
    visitor.become(0)
    body = f"csrf={visitor.token()}&id=a&more=" + "x" * MAX_FORM
    answer = visitor.http.post("/job/retry", content=body, headers={"content-type": FORM})
    assert answer.status_code == 400
    answer = visitor.http.post("/job/retry", json={"id": "a"})
    assert answer.status_code == 400


@pytest.mark.parametrize(
    "at", ["0001-01-01T00:00+14:00", "0001-01-01T00:00", "9999-12-31T23:59-23:59"]
)
def test_times_at_the_edge_of_the_calendar_are_refused(visitor: Visitor, at: str) -> None:
    visitor.become(0)
    mine = ScheduleCollection(visitor.app.store, "crm").of(user("ada"))
    asyncio.run(mine.create("k", cron("0 9 * * *", tz="Asia/Tokyo"), action="send", input={}))
    key = {"flow": "crm", "scope": "user:ada", "name": "k"}
    answer = visitor.http.get("/schedule", params=key | {"at": at})
    assert answer.status_code == 400
    assert visitor.http.get("/schedule", params=key | {"at": "0001-01-03"}).status_code == 200


def test_dashboard_can_be_mounted_under_a_path() -> None:
    app = an_app()
    asyncio.run(a_dead_job(app))
    visitor = Visitor(app, OperatorAuth(AuthOptions(OPERATORS)), "/duly")
    with visitor.http:
        answer = visitor.http.get("/duly/jobs")
        assert answer.headers["location"] == "/duly/sign-in?next=%2Fjobs"
        fields = {"name": "ada", "password": PASSWORD, "next": "/jobs"}
        answer = visitor.http.post("/duly/sign-in", data=fields)
        assert answer.headers["location"] == "/duly/jobs"
        assert "Path=/duly;" in answer.headers["set-cookie"]
        page = visitor.http.get("/duly/jobs").text
        links = re.findall(r'(?:href|action|src|data-live)="([^"#]+)"', page)
        assert len(links) > 15
        assert [each for each in links if not each.startswith("/duly")] == []
        fields = {"csrf": visitor.token("/duly/queue?name=a"), "name": "a", "back": "/queues"}
        answer = visitor.http.post("/duly/queue/pause", data=fields)
        assert answer.headers["location"] == "/duly/queues"


def test_development_needs_no_sign_in_but_this_machine() -> None:
    auth = OperatorAuth(AuthOptions(development_host="127.0.0.1"))
    visitor = Visitor(an_app(), auth)
    with visitor.http:
        assert visitor.http.get("/").status_code == 200
        answer = visitor.http.post("/queue/pause", data={"name": "a"})
        assert answer.status_code == 403
        fields = {"name": "a", "csrf": visitor.token()}
        assert visitor.http.post("/queue/pause", data=fields).status_code == 303
        for host in (
            "evil.example",
            "{x}.evil.example",
            'a"b.evil.example:8787',
            "127.0.0.1#@evil.example",
            "[::1].evil.example",
            "",
        ):
            other = visitor.http.get("/", headers={"host": host})
            assert other.status_code == 403, host
        for host in ("localhost", "localhost:8787", "127.0.0.1:1", "[::1]", "[::1]:8787"):
            assert visitor.http.get("/", headers={"host": host}).status_code == 200, host


def test_schedule_is_made_changed_and_deleted(visitor: Visitor) -> None:
    visitor.become(0)
    key = {"flow": "crm", "scope": "user:ada", "name": "a/b ä"}
    fields = key | {"csrf": visitor.token(), "rule": "0 9 * * *", "action": "crm.send"}
    visitor.http.post("/schedules/create", data=fields)
    page = visitor.http.get("/schedule", params=key).text
    assert "at 09:00" in page
    edit = visitor.http.get("/schedules/edit", params=key).text
    version = re.search(r'name="version" value="(\d+)"', edit)
    assert version is not None
    changed = fields | {"rule": "0 10 * * *", "version": version[1]}
    visitor.http.post("/schedules/change", data=changed)
    assert "at 10:00" in visitor.http.get("/schedule", params=key).text
    visitor.http.post("/schedules/change", data=changed | {"rule": "0 11 * * *"})
    assert "at 10:00" in visitor.http.get("/schedule", params=key).text
    visitor.http.post("/schedule/delete", data=fields)
    assert visitor.http.get("/schedule", params=key).status_code == 404


def test_a_change_keeps_the_zone_and_pages_show_seconds(visitor: Visitor) -> None:
    visitor.become(0)
    key = {"flow": "crm", "scope": "user:ada", "name": "digest"}
    rule = '{"kind": "cron", "expression": "15 0 9 * * *", "seconds": true}'
    fields = key | {"csrf": visitor.token(), "rule": rule, "action": "crm.send"}
    visitor.http.post("/schedules/create", data=fields | {"zone": "Europe/Berlin"})
    page = visitor.http.get("/schedule", params=key).text
    assert re.search(r'class="wall"[^>]*>[^<]* 09:00:15<', page)
    form = visitor.http.get("/schedules/edit", params=key).text
    assert " 09:00:15<" in form
    assert "Europe/Berlin" in form
    visitor.http.post("/schedules/change", data=fields | {"rule": "0 10 * * *", "version": "1"})
    page = visitor.http.get("/schedule", params=key).text
    assert "at 10:00" in page
    assert "Europe/Berlin" in page


def test_external_schedule_is_paused_and_resumed(visitor: Visitor) -> None:
    visitor.become(0)
    mine = ScheduleCollection(visitor.app.store, "crm").of(user("ada"))
    asyncio.run(mine.create("outside", "0 9 * * *", action="send", hand_over="external"))
    key = {"flow": "crm", "scope": "user:ada", "name": "outside"}
    fields = key | {"csrf": visitor.token()}
    assert "An outside scheduler fires it" in visitor.http.get("/schedule", params=key).text
    visitor.http.post("/schedule/pause", data=fields)
    listed = visitor.http.get("/schedules", params={"state": "paused", "hand_over": "external"})
    assert "outside" in listed.text
    others = visitor.http.get("/schedules", params={"state": "paused", "hand_over": "http"})
    assert "No such schedule" in others.text
    page = visitor.http.get("/schedule", params=key).text
    assert "It is paused: nothing will fire." in page
    assert "/schedule/resume" in page
    visitor.http.post("/schedule/resume", data=fields)
    assert "/schedule/pause" in visitor.http.get("/schedule", params=key).text
    assert visitor.http.get("/schedules", params={"hand_over": "x"}).status_code == 400


def test_unknown_actions_are_refused(visitor: Visitor) -> None:
    visitor.become(0)
    fields = {"csrf": visitor.token(), "flow": "crm", "scope": "system", "name": "x"}
    visitor.http.post("/schedules/create", data=fields | {"rule": "0 9 * * *", "action": "sned"})
    assert "did you mean" in visitor.http.get("/schedules").text


def test_an_input_nested_too_deep_is_refused(visitor: Visitor) -> None:
    visitor.become(0)
    fields = {"csrf": visitor.token(), "flow": "crm", "scope": "system", "name": "x"}
    fields |= {"rule": "0 9 * * *", "action": "crm.send", "input": "[" * 5_000 + "]" * 5_000}
    assert visitor.http.post("/schedules/create", data=fields).status_code == 303
    assert "nested more than 100 levels deep" in visitor.http.get("/schedules").text


def test_words_of_users_are_escaped(visitor: Visitor) -> None:
    evil = "<script>alert(1)</script>"
    collection = ScheduleCollection(visitor.app.store, "crm")

    async def make() -> None:
        mine = collection.of(user("ada"))
        await mine.create(evil, cron("0 9 * * *"), action="send", description=evil, note=evil)

    asyncio.run(make())
    visitor.become(0)
    key = {"flow": "crm", "scope": "user:ada", "name": evil}
    for page in ("/", "/schedules", "/schedule"):
        assert "<script>alert" not in visitor.http.get(page, params=key).text


def test_static_files_are_cached_by_version(visitor: Visitor) -> None:
    visitor.become(0)
    page = visitor.http.get("/").text
    for name in re.findall(r'"(/static/[^"]+)"', page):
        answer = visitor.http.get(name)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
    assert visitor.http.get("/static/duly.css?v=old").headers["cache-control"] == "no-cache"
    assert visitor.http.get("/static/../dashboard.py").status_code in (303, 404)
    assert visitor.http.get("/static/nothing").status_code == 404
