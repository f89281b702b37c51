"""The dashboard: an ASGI application with pages for signed-in operators; mountable anywhere.

Every page is read-only; every action is a POST with the session's token and leaves an audit entry.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from duly.clock import SystemClock
from duly.errors import BackendUnavailable, Conflict, DulyError, InvalidInput, NotFound
from duly.model.summaries import MAX_AUDIT_TEXT, AuditEntry
from duly.operate.redaction.values import scrub
from duly.web.dashboard.gate import Entry, Gate, form_of, keep_session, own_path, root_of
from duly.web.dashboard.headers import SafeHeaders
from duly.web.dashboard.live import MAX_STREAMS, Live
from duly.web.dashboard.pages import health, jobs, overview, places, schedule_form, schedules
from duly.web.dashboard.pages.page import (
    Costly,
    Done,
    MonitoredApp,
    Page,
    PageAction,
    PageOf,
    PageRequest,
)
from duly.web.dashboard.rendering import Renderer, Words
from duly.web.metrics import Metrics
from duly.web.operators.auth import OperatorAuth
from duly.web.operators.sign_in import SignIn
from duly.web.operators.sign_outs import SignOuts
from duly.web.probes import Probes
from duly.web.serving.ambiguity import RefuseAmbiguous

log = logging.getLogger(__name__)

PAGES: dict[str, PageOf] = {
    "/": overview.overview,
    "/jobs": jobs.jobs,
    "/jobs/confirm": jobs.confirm_many,
    "/job": jobs.job,
    "/schedules": schedules.schedules,
    "/schedule": schedules.schedule,
    "/schedules/new": schedule_form.new_schedule,
    "/schedules/edit": schedule_form.edit_schedule,
    "/queues": places.queues,
    "/queue": places.queue,
    "/workers": places.workers,
    "/locks": places.locks,
    "/health": health.health,
    "/quarantine": places.quarantine,
    "/audit": places.audit,
}
ACTIONS: dict[str, PageAction] = (
    jobs.ACTIONS | places.ACTIONS | schedules.ACTIONS | schedule_form.ACTIONS
)
NOTE, THEME = "duly_note", "duly_theme"
THEMES = ("auto", "light", "dark")
_YEAR_S = 31_536_000
_KINDS = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_STATUS: tuple[tuple[type[DulyError], int], ...] = (
    (NotFound, 404),
    (InvalidInput, 400),
    (Conflict, 409),
    (BackendUnavailable, 503),
)
Endpoint = Callable[[Request], Awaitable[Response]]


def dashboard_app(
    app: MonitoredApp, auth: OperatorAuth, *, most_streams: int = MAX_STREAMS
) -> Starlette:
    """Return the dashboard of an application, to be mounted at / or under a path of its own.

    At most `most_streams` live pages are served at a time, each on a connection of its own. Its
    `state.live` must be closed before a server waits for its connections to end.
    """
    return Dashboard(app, auth, most_streams).starlette


class Dashboard:
    """The pages of one application."""

    def __init__(
        self, app: MonitoredApp, auth: OperatorAuth, most_streams: int = MAX_STREAMS
    ) -> None:
        self._app = app
        self._auth = auth
        self._costly = Costly.of(app)
        self._renderer = Renderer()
        sign_outs = SignOuts(app)
        self._gate = Gate(auth, sign_outs)
        self._live = Live(most=most_streams)
        self.starlette = Starlette(
            routes=self._routes(SignIn(app, auth, self._renderer, sign_outs))
        )
        self.starlette.add_middleware(RefuseAmbiguous)
        self.starlette.add_middleware(SafeHeaders)
        self.starlette.state.live = self._live

    def _routes(self, sign_in: SignIn) -> list[Route]:
        return [
            *(Route(path, self._shows(page)) for path, page in PAGES.items()),
            *(Route(path, self._grants(each), methods=["POST"]) for path, each in ACTIONS.items()),
            Route("/live", self._follow),
            Route("/theme", self._theme, methods=["POST"]),
            Route("/static/{name}", self._static),
            *sign_in.routes,
            *Probes(self._app).routes,
            *Metrics(self._app, self._auth).routes,
            Route("/{rest:path}", self._shows(_nowhere)),
        ]

    def _shows(self, page: PageOf) -> Endpoint:
        async def show(request: Request) -> Response:
            entry = await self._gate.enter(request)
            if isinstance(entry, Response):
                return entry
            page_request = await self._visit(entry, dict(request.query_params))
            found, status = await _look(page, page_request)
            values = await self._values(request, entry, page_request, found)
            html = self._renderer.page(found.template, values)
            response = Response(html, status, media_type="text/html")
            if entry.new_cookie is not None:
                keep_session(request, response, entry.new_cookie, self._auth.options.session_s)
            if NOTE in request.cookies:
                response.delete_cookie(NOTE, path=root_of(request) or "/")
            return response

        return show

    def _grants(self, page_action: PageAction) -> Endpoint:
        async def grant(request: Request) -> Response:
            entry = await self._gate.enter(request)
            if isinstance(entry, Response):
                return entry
            try:
                fields = await form_of(request)
            except InvalidInput as error:
                return PlainTextResponse(f"{error}\n", 400)
            if not self._gate.is_own_form(request, entry, fields):
                return PlainTextResponse("the form is of another session: reload the page\n", 403)
            return await self._grant(request, page_action, await self._visit(entry, fields))

        return grant

    async def _grant(
        self, request: Request, page_action: PageAction, page_request: PageRequest
    ) -> Response:
        """Run an action and record it in the audit, whether it was done or refused."""
        refusal: str | None = None
        done = Done("")
        if not page_request.operator.may_act:
            refusal = f"{page_request.operator.name} is a viewer and may not change anything."
        else:
            try:
                done = await page_action.grant(page_request)
            except BackendUnavailable as error:
                return PlainTextResponse(f"{scrub(str(error))}\n", 503)
            except DulyError as error:
                refusal = scrub(str(error))
        self._costly.overview.forget()
        words = done.words if refusal is None else refusal
        entry = AuditEntry(
            page_request.operator.name,
            page_action.action,
            page_action.target_of(page_request),
            "done" if refusal is None else "refused",
            words[:MAX_AUDIT_TEXT],
        )
        await page_request.admin.monitoring.record(entry)
        log.info(
            "%s: %s %s",
            entry.by,
            entry.action,
            entry.target,
            extra={"event": "operator.wish", "outcome": entry.outcome},
        )
        go_to = done.go_to if done.go_to is not None else own_path(page_request.word("back"))
        response = RedirectResponse(root_of(request) + go_to, 303)
        self._leave_note(request, response, words, "good" if refusal is None else "bad")
        return response

    def _leave_note(self, request: Request, response: Response, words: str, tone: str) -> None:
        """Set a cookie with a message for the next page."""
        response.set_cookie(
            NOTE,
            self._auth.signer.seal("note", (words[:500], tone)),
            max_age=60,
            path=root_of(request) or "/",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="lax",
        )

    def _note(self, request: Request) -> tuple[str, str] | None:
        body = self._auth.signer.unseal("note", request.cookies.get(NOTE, ""))
        return None if body is None else msgspec.json.decode(body, type=tuple[str, str])

    async def _follow(self, request: Request) -> Response:
        """Stream the live parts of a page, which is named by its path and query."""
        entry = await self._gate.enter(request)
        if isinstance(entry, Response):
            return entry if entry.status_code == 503 else PlainTextResponse("sign in first\n", 401)
        at = urlsplit(own_path(request.query_params.get("at")))
        page = PAGES.get(at.path, _nowhere)
        query = dict(parse_qsl(at.query))

        async def read() -> dict[str, str] | None:
            if not await self._gate.is_still(entry):
                return None
            page_request = await self._visit(entry, query)
            found, status = await _look(page, page_request)
            if status != 200 or not found.is_live:
                return None if status in (404, 200) else {}
            values = await self._values(request, entry, page_request, found)
            return self._renderer.fragments(found.template, values)

        return self._live.answer(read)

    async def _visit(self, entry: Entry, query: Mapping[str, str]) -> PageRequest:
        try:
            now = await self._app.admin.monitoring.now()
        except BackendUnavailable:
            now = SystemClock().now()  # the page will report the error
        return PageRequest(self._app, self._costly, entry.operator, now, query)

    async def _values(
        self, request: Request, entry: Entry, page_request: PageRequest, page: Page
    ) -> dict[str, Any]:
        """Return the values of every template, and those of the page."""
        words = Words(page_request.now, root_of(request))
        path = request.url.path.removeprefix(root_of(request)) or "/"
        own = f"{path}?{request.url.query}" if request.url.query else path
        at = own_path(request.query_params.get("at")) if path == "/live" else own
        theme = request.cookies.get(THEME, "auto")
        shared = {
            "title": page.title,
            "section": page.section,
            "is_live": page.is_live,
            "operator": page_request.operator,
            "token": entry.token,
            "at_path": at,
            "note": self._note(request),
            "theme": theme if theme in THEMES else "auto",
            "menu": await self._costly.menu.try_now(),
            "now": page_request.now,
            "ago": words.ago,
            "clock": words.at,
            "wall_clock": words.on_wall,
            "url": words.url,
            "query": page_request.query,
        }
        return shared | dict(page.values)

    async def _theme(self, request: Request) -> Response:
        try:
            fields = await form_of(request)
        except InvalidInput as error:
            return PlainTextResponse(f"{error}\n", 400)
        theme = fields.get("theme", "auto")
        response = RedirectResponse(root_of(request) + own_path(fields.get("back")), 303)
        chosen = theme if theme in THEMES else "auto"
        path = root_of(request) or "/"
        response.set_cookie(THEME, chosen, max_age=_YEAR_S, path=path, samesite="lax")
        return response

    async def _static(self, request: Request) -> Response:
        name = request.path_params["name"]
        content = self._renderer.files.get(name)
        if content is None:
            return PlainTextResponse("no such file\n", 404)
        is_named = request.query_params.get("v") == self._renderer.versions[name]
        cache = f"public, max-age={_YEAR_S}, immutable" if is_named else "no-cache"
        kind = _KINDS[name.rpartition(".")[2]]
        return Response(content, media_type=kind, headers={"Cache-Control": cache})


async def _look(page: PageOf, page_request: PageRequest) -> tuple[Page, int]:
    """Return a page with its status, or the error page."""
    try:
        return await page(page_request), 200
    except DulyError as error:
        status = next((number for kind, number in _STATUS if isinstance(error, kind)), 500)
        values = {"status": status, "words": scrub(str(error))}
        return Page("fault.html", "Not shown", "", values, is_live=False), status


async def _nowhere(_visit: PageRequest) -> Page:
    raise NotFound("there is no such page")
