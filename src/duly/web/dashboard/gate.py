"""Access to the dashboard: the operator of a request, and the fields of its form.

Nothing is shown to unknown callers. In development mode, without sign-in, only host names of this
machine are served, so that another site cannot reach it under its own name (DNS rebinding).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlsplit

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from duly.errors import BackendUnavailable, InvalidInput
from duly.web.dashboard import csrf
from duly.web.operators.accounts import Operator, is_loopback
from duly.web.operators.auth import DEVELOPER, OperatorAuth
from duly.web.operators.sessions import Session
from duly.web.operators.sign_outs import SignOuts

COOKIE = "duly_session"
MAX_FORM = 300_000
MAX_FIELDS = 100
_HOST = re.compile(r"([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?")


@dataclass(frozen=True, slots=True)
class Entry:
    """An authenticated request."""

    operator: Operator
    session: Session
    token: str
    """CSRF token of the session's forms."""
    new_cookie: str | None = None


class Gate:
    """Authentication of dashboard requests."""

    def __init__(self, auth: OperatorAuth, sign_outs: SignOuts) -> None:
        self._auth = auth
        self._sign_outs = sign_outs

    async def enter(self, request: Request) -> Entry | Response:
        """Return the caller, or the answer for an unknown one."""
        if self._auth.is_open and not _names_this_machine(request):
            return PlainTextResponse("development mode serves this machine only\n", 403)
        found = self._auth.read(request.cookies.get(COOKIE))
        try:
            if found is not None and not await self._sign_outs.has(found[0]):
                return self._entry(*found)
        except BackendUnavailable:
            # The session may have been signed out, so it is refused.
            words = "the database did not answer, so the session cannot be checked; try again\n"
            return PlainTextResponse(words, 503)
        if self._auth.is_open:
            cookie = self._auth.begin(DEVELOPER)
            begun = self._auth.read(cookie)
            assert begun is not None
            return self._entry(*begun, cookie)
        if request.method != "GET":
            return PlainTextResponse("sign in first\n", 403)
        here = quote(_here(request), safe="")
        return RedirectResponse(f"{root_of(request)}/sign-in?next={here}", 303)

    async def is_still(self, entry: Entry) -> bool:
        """Return whether the session is neither expired, revoked nor signed out."""
        session = entry.session
        is_known = self._auth.operator_of(session) is not None
        is_valid = is_known and self._auth.now_s() < session.ends_at_s
        return is_valid and not await self._sign_outs.has(session)

    def is_own_form(self, request: Request, entry: Entry, fields: dict[str, str]) -> bool:
        """Return whether a form was sent from a page of this session."""
        token = fields.get(csrf.FIELD, "")
        return csrf.is_same_origin(request.headers) and csrf.is_own(
            self._auth.signer, entry.session, token
        )

    def _entry(self, session: Session, operator: Operator, cookie: str | None = None) -> Entry:
        return Entry(operator, session, csrf.token_of(self._auth.signer, session), cookie)


def root_of(request: Request) -> str:
    """Return the mount path of the dashboard, without a trailing slash."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def keep_session(request: Request, response: Response, cookie: str, for_s: int) -> None:
    """Set the session cookie."""
    response.set_cookie(
        COOKIE,
        cookie,
        max_age=for_s,
        path=root_of(request) or "/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="lax",
    )


def own_path(text: str | None) -> str:
    """Return the text if it is a path of the dashboard, else `/`."""
    if not text or not text.startswith("/") or text.startswith("//") or "\\" in text:
        return "/"
    parts = urlsplit(text)
    is_plain = not parts.scheme and not parts.netloc and text.isprintable()
    return text if is_plain and not parts.path.startswith("/sign-") else "/"


def _names_this_machine(request: Request) -> bool:
    """Return whether a request was sent to an address that only this machine has.

    Reads the raw `Host` header: for a malformed one `request.url` falls back to the server's own
    address.
    """
    sent = request.headers.getlist("host")
    found = [_HOST.fullmatch(each) for each in sent]
    return bool(sent) and all(each is not None and is_loopback(each[1]) for each in found)


def _here(request: Request) -> str:
    """Return the path and query of a request, without the mount path."""
    path = request.url.path.removeprefix(root_of(request)) or "/"
    return f"{path}?{request.url.query}" if request.url.query else path


async def form_of(request: Request) -> dict[str, str]:
    """Return the fields of a form; refuse other content types and more than MAX_FORM bytes."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise InvalidInput("a form must be sent as application/x-www-form-urlencoded")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM:
            raise InvalidInput(f"the form is too large; allowed: {MAX_FORM} bytes")
    try:
        pairs = parse_qsl(
            body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict"
        )
    except ValueError:
        raise InvalidInput("the form cannot be decoded") from None
    return dict(pairs)
