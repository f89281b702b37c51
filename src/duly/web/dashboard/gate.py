"""The door: who a request comes from, and what a form says.

Nothing is shown before somebody is known. Where no sign-in is asked for, only addresses of this
machine are served, so that no page from elsewhere can reach in under a name of its own.
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
    """Somebody who came in."""

    operator: Operator
    session: Session
    token: str
    """What the forms of this session carry."""
    new_cookie: str | None = None


class Gate:
    """Lets requests in."""

    def __init__(self, auth: OperatorAuth, sign_outs: SignOuts) -> None:
        self._auth = auth
        self._sign_outs = sign_outs

    async def enter(self, request: Request) -> Entry | Response:
        """Return the caller, or the answer to an unknown one."""
        if self._auth.is_open and not _names_this_machine(request):
            return PlainTextResponse("development mode answers on this machine only\n", 403)
        found = self._auth.read(request.cookies.get(COOKIE))
        try:
            if found is not None and not await self._sign_outs.has(found[0]):
                return self._entry(*found)
        except BackendUnavailable:
            # A session that may have been signed out is not let in.
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
        """Return whether the session has neither ended nor been taken away or signed out."""
        session = entry.session
        is_known = self._auth.operator_of(session) is not None
        is_valid = is_known and self._auth.now_s() < session.ends_at_s
        return is_valid and not await self._sign_outs.has(session)

    def is_own_form(self, request: Request, entry: Entry, fields: dict[str, str]) -> bool:
        """Whether a form was sent from a page of this session."""
        token = fields.get(csrf.FIELD, "")
        return csrf.is_same_origin(request.headers) and csrf.is_own(
            self._auth.signer, entry.session, token
        )

    def _entry(self, session: Session, operator: Operator, cookie: str | None = None) -> Entry:
        return Entry(operator, session, csrf.token_of(self._auth.signer, session), cookie)


def root_of(request: Request) -> str:
    """The path at which the dashboard is mounted, without a slash at its end."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def keep_session(request: Request, response: Response, cookie: str, for_s: int) -> None:
    """Give the browser its session."""
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
    """A path of the dashboard; anything else is its first page."""
    if not text or not text.startswith("/") or text.startswith("//") or "\\" in text:
        return "/"
    parts = urlsplit(text)
    is_plain = not parts.scheme and not parts.netloc and text.isprintable()
    return text if is_plain and not parts.path.startswith("/sign-") else "/"


def _names_this_machine(request: Request) -> bool:
    """Whether a request was sent to an address that only this machine has.

    By the header as it was sent: of a malformed one `request.url` says nothing, and names the
    server's own address instead, while a browser may well have found its way by it.
    """
    sent = request.headers.getlist("host")
    found = [_HOST.fullmatch(each) for each in sent]
    return bool(sent) and all(each is not None and is_loopback(each[1]) for each in found)


def _here(request: Request) -> str:
    """Where a request was going, without the root."""
    path = request.url.path.removeprefix(root_of(request)) or "/"
    return f"{path}?{request.url.query}" if request.url.query else path


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form, which is neither long nor anything but a form."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise InvalidInput("a form must be sent as application/x-www-form-urlencoded")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM:
            raise InvalidInput(f"a form has more than {MAX_FORM} bytes")
    try:
        pairs = parse_qsl(
            body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict"
        )
    except ValueError:
        raise InvalidInput("a form cannot be read") from None
    return dict(pairs)
