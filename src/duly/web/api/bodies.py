"""Reading of request bodies up to a limit, checked by the declared length and while reading."""

from __future__ import annotations

from starlette.requests import Request


class TooLarge(Exception):
    """The body is larger than allowed."""


async def read_limited(request: Request, most: int) -> bytes:
    """Return the body; raise TooLarge above `most` bytes."""
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > most:
        raise TooLarge
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise TooLarge
        parts.append(part)
    return b"".join(parts)
