"""Refusal of ambiguous requests, before anything else is read of them.

A proxy and this server must agree where a body ends, which host it is for and who sends it, so the
headers that decide this may be sent only once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from duly.dispatch.auth.signing import ID, SIGNATURE, TIMESTAMP
from duly.dispatch.contract import refusal

ONCE = frozenset(
    {
        *("content-length", "transfer-encoding", "host", "content-type"),
        *("authorization", "origin", "sec-fetch-site", "x-forwarded-proto"),
        *(ID, TIMESTAMP, SIGNATURE),
    }
)
"""Headers that decide framing, target, caller or trust; repeated ones are refused."""
LISTS = frozenset(
    {
        *("accept", "accept-charset", "accept-encoding", "accept-language", "cache-control"),
        *("connection", "cookie", "forwarded", "pragma", "te", "via", "x-forwarded-for"),
    }
)
"""Headers whose value is a list, so that repeated ones can be joined."""
RawHeaders = Iterable[tuple[bytes, bytes]]


def ambiguity_of(headers: RawHeaders) -> str | None:
    """Return what is ambiguous in a request's headers, as a sentence; None: nothing."""
    counts = Counter(name.decode("latin-1").lower() for name, _ in headers)
    if counts["content-length"] and counts["transfer-encoding"]:
        return "content-length and transfer-encoding must not both be sent"
    for name in sorted(ONCE):
        if counts[name] > 1:
            return _repeated(name)
    return None


class UniqueHeaders(Mapping[str, str]):
    """Headers by lower-case name, for code that decides by one of them.

    Reading a header that was sent more than once is refused with 400, since another reader might
    take the other value. Those whose value is a list are joined.
    """

    def __init__(self, headers: RawHeaders) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in headers:
            lower = name.decode("latin-1").lower()
            self._values.setdefault(lower, []).append(value.decode("latin-1"))

    def __getitem__(self, name: str) -> str:
        values = self._values[name]
        if name in LISTS:
            return ("; " if name == "cookie" else ", ").join(values)
        if len(values) > 1:
            raise refusal(400, "ambiguous_request", _repeated(name))
        return values[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class RefuseAmbiguous:
    """Answers ambiguous requests with 400 and passes all others on."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one connection."""
        found = ambiguity_of(scope["headers"]) if scope["type"] == "http" else None
        if found is None:
            await self._app(scope, receive, send)
            return
        # Another reader may take what follows on this connection as part of this request.
        headers = {"connection": "close", "cache-control": "no-store"}
        body = refusal(400, "ambiguous_request", found).answer.body
        await JSONResponse(body, 400, headers)(scope, receive, send)


def _repeated(name: str) -> str:
    return f"header {name} was sent more than once; send it once"
