"""Sign-out: the session cookie is invalid afterwards, in every server process."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from duly import Duly
from duly.errors import BackendUnavailable
from duly.web.dashboard.gate import COOKIE
from duly.web.dashboard.site import dashboard_app
from duly.web.operators.accounts import Operator, hash_password
from duly.web.operators.auth import AuthOptions, OperatorAuth
from tests.integration.http.site import served

PASSWORD = "correct horse"  # noqa: S105 - of a throwaway server
OPERATORS = (Operator("ada", "operator", hash_password(PASSWORD)),)
SHARED = b"one secret of all processes"


@pytest.fixture(params=["memory:", "sqlite"])
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[tuple[Duly, str]]]:
    """Serve two applications with one database and session secret; one if the store is memory."""
    with ExitStack() as stack:
        found = []
        for _ in range(1 if request.param == "memory:" else 2):
            url = request.param if request.param == "memory:" else f"sqlite:///{tmp_path}/duly.db"
            app = Duly(url)
            auth = OperatorAuth(AuthOptions(OPERATORS, SHARED))
            port = stack.enter_context(served(dashboard_app(app, auth)))
            found.append((app, f"http://127.0.0.1:{port}"))
        yield found


def signed_in(url: str) -> str:
    """Sign in and return the session cookie."""
    answer = httpx.post(f"{url}/sign-in", data={"name": "ada", "password": PASSWORD})
    assert answer.status_code == 303
    return answer.cookies[COOKIE]


def ask(method: str, url: str, cookie: str, **options: Any) -> httpx.Response:
    return httpx.request(method, url, headers={"cookie": f"{COOKIE}={cookie}"}, **options)


def test_a_session_cookie_is_refused_after_sign_out(servers: list[tuple[Duly, str]]) -> None:
    first, last = servers[0][1], servers[-1][1]
    kept, other = signed_in(first), signed_in(first)
    page = ask("GET", f"{last}/queue?name=default", kept)
    assert page.status_code == 200
    token = re.search(r'name="csrf" value="([0-9a-f]+)"', page.text)
    assert token is not None
    assert ask("POST", f"{first}/sign-out", kept).status_code == 303

    for url in (first, last):
        assert ask("GET", f"{url}/jobs", kept).headers["location"].startswith("/sign-in")
        assert ask("GET", f"{url}/metrics", kept).status_code == 401
        assert ask("GET", f"{url}/live?at=/jobs", kept).status_code == 401
        pause = ask("POST", f"{url}/queue/pause", kept, data={"csrf": token[1], "name": "default"})
        assert pause.status_code == 403
        # Another session of the same operator stays valid.
        assert ask("GET", f"{url}/jobs", other).status_code == 200
    assert ask("GET", f"{last}/jobs", signed_in(last)).status_code == 200


def test_a_sign_out_is_audited_once_without_the_cookie(servers: list[tuple[Duly, str]]) -> None:
    url = servers[0][1]
    cookie = signed_in(url)
    for _ in range(3):
        ask("POST", f"{url}/sign-out", cookie)
    ask("POST", f"{url}/sign-out", "no.session")
    audit = ask("GET", f"{url}/audit", signed_in(url)).text
    assert audit.count("sign_out") == 1
    assert cookie not in audit


def test_a_sign_out_that_could_not_be_stored_answers_503(
    servers: list[tuple[Duly, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    app, url = servers[0]
    cookie = signed_in(url)

    async def away(*_: object, **__: object) -> None:
        raise BackendUnavailable("unreachable")

    with monkeypatch.context() as patched:
        patched.setattr(app.store, "append_audit", away)
        answer = ask("POST", f"{url}/sign-out", cookie)
        assert answer.status_code == 503
        assert "still signed in" in answer.text
        assert "set-cookie" not in answer.headers
        patched.setattr(app.store, "list_audit", away)
        # The server cannot know whether the session was signed out, so it refuses the request.
        assert ask("GET", f"{url}/jobs", cookie).status_code == 503
        assert ask("GET", f"{url}/live?at=/jobs", cookie).status_code == 503
    assert ask("GET", f"{url}/jobs", cookie).status_code == 200
