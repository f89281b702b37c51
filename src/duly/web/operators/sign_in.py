"""Sign-in by password or one-time link, and sign-out."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from duly.errors import BackendUnavailable, InvalidInput
from duly.model.summaries import AuditEntry, AuditOutcome
from duly.web.dashboard import csrf
from duly.web.dashboard.gate import COOKIE, form_of, keep_session, own_path, root_of
from duly.web.dashboard.pages.page import MonitoredApp
from duly.web.dashboard.rendering import Renderer
from duly.web.operators.accounts import Operator
from duly.web.operators.auth import OperatorAuth, Wait
from duly.web.operators.sign_outs import SignOuts

UNKNOWN = "(unknown)"


class SignIn:
    """Pages for signing in and out."""

    def __init__(
        self, app: MonitoredApp, auth: OperatorAuth, renderer: Renderer, sign_outs: SignOuts
    ) -> None:
        self._app = app
        self._auth = auth
        self._renderer = renderer
        self._sign_outs = sign_outs
        self.routes = [
            Route("/sign-in", self._ask),
            Route("/sign-in", self._sign_in, methods=["POST"]),
            Route("/sign-in/link", self._ask_link),
            Route("/sign-in/link", self._use_link, methods=["POST"]),
            Route("/sign-out", self._sign_out, methods=["POST"]),
        ]

    async def _ask(self, request: Request) -> Response:
        return self._page(request, next=own_path(request.query_params.get("next")))

    async def _ask_link(self, request: Request) -> Response:
        # A button, since link scanners that open the address must not consume the token.
        return self._page(request, token=request.query_params.get("token", "")[:128])

    async def _sign_in(self, request: Request) -> Response:
        fields = await self._fields(request)
        if isinstance(fields, Response):
            return fields
        name, password = fields.get("name", "").strip(), fields.get("password", "")
        address = request.client.host if request.client else UNKNOWN
        go_to = own_path(fields.get("next"))
        found = await self._auth.sign_in(name, password, address)
        if isinstance(found, Wait):
            words = f"Too many attempts. Try again in {found.s} s."
            page = self._page(request, 429, words=words, next=go_to, name=name)
            page.headers["Retry-After"] = str(found.s)
            return page
        if found is None:
            known = {each.name for each in self._auth.options.operators}
            # An unknown name may be a password typed into the wrong field.
            await self._record(name if name in known else UNKNOWN, "refused", address)
            words = "Wrong name or password."
            return self._page(request, 401, words=words, next=go_to, name=name)
        await self._record(found.name, "done", address)
        return self._admit(request, found, go_to)

    async def _use_link(self, request: Request) -> Response:
        fields = await self._fields(request)
        if isinstance(fields, Response):
            return fields
        found = self._auth.use_link_token(fields.get("token", ""))
        address = request.client.host if request.client else UNKNOWN
        if found is None:
            await self._record(UNKNOWN, "refused", address)
            words = "This link was used or has expired. Request another one."
            return self._page(request, 401, words=words)
        await self._record(found.name, "done", address)
        return self._admit(request, found, "/")

    async def _sign_out(self, request: Request) -> Response:
        if not csrf.is_same_origin(request.headers):
            return self._page(request, 403, words="The form came from another site.")
        found = self._auth.read(request.cookies.get(COOKIE))
        try:
            if found is not None and not await self._sign_outs.has(found[0]):
                address = request.client.host if request.client else UNKNOWN
                await self._sign_outs.record(found[0], address)
        except BackendUnavailable:
            words = "The database did not answer, so you are still signed in. Try again."
            return self._page(request, 503, words=words)
        response = RedirectResponse(f"{root_of(request)}/sign-in", 303)
        response.delete_cookie(COOKIE, path=root_of(request) or "/")
        return response

    async def _fields(self, request: Request) -> dict[str, str] | Response:
        if not csrf.is_same_origin(request.headers):
            return self._page(request, 403, words="The form came from another site.")
        try:
            return await form_of(request)
        except InvalidInput as error:
            return self._page(request, 400, words=str(error))

    def _admit(self, request: Request, operator: Operator, go_to: str) -> Response:
        response = RedirectResponse(root_of(request) + go_to, 303)
        cookie = self._auth.begin(operator)
        keep_session(request, response, cookie, self._auth.options.session_s)
        return response

    async def _record(self, name: str, outcome: AuditOutcome, address: str) -> None:
        entry = AuditEntry(name, "sign_in", f"operator:{name}", outcome, f"from {address}")
        await self._app.admin.monitoring.record(entry)

    def _page(self, request: Request, status: int = 200, **values: str) -> Response:
        known = {"words": "", "next": "/", "name": "", "token": "", "root": root_of(request)}
        known["theme"] = request.cookies.get("duly_theme", "auto")
        html = self._renderer.page("sign_in.html", known | values)
        return Response(html, status, media_type="text/html")
